"""Choose in-context examples for a query: documents 001 and 004 (docs/tasks.md).

    queries.py   the records: a query with its stored pick tuples, the scores of picks, what a source of both can do
    rewards.py   scores -> training reward, by mode
    world.py     the built-in generator, whose truth is known
    files.py     a user's JSON and embeddings
    task.py      ExampleSelectionTask

Candidates go by their global index, the row of the candidate embeddings; a policy picks positions in a pool, and only
task.py translates. numpy, and no torch.
"""
