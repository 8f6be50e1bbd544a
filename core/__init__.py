"""One run: what it is (config), how it samples, scores, learns and stops. Knows no command line, Optuna or MLflow."""
