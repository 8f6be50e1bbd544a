"""GSM8K: word problems whose answer is one number."""
