"""What a task's problems are like before anything is trained on them: repeated texts, lengths, pass rates. No torch."""
