"""What a sweep says, read from its sweep.json: ranking, marginals, regions, cost, figures. Running one is not here."""
