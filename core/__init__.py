"""One run: what it is (spec), how it samples, scores, learns and stops. Knows no command line, Optuna or MLflow."""
