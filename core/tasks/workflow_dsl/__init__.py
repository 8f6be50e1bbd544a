"""Write one line of workflow DSL for a problem: the language, its rewards and the task.

    grammar.py    the records of a workflow; text -> Workflow -> its one canonical text; structure classes
    rewards.py    (domain, workflow) -> distribution of reward levels: P30's log where it covers a pattern, else a rule
    problems.py   seeded problem texts, the two prompt styles, demonstrations for the built-in model
    task.py       WorkflowDslTask, and the tables of document 000

No torch here, and no workflow is ever executed: rewards come from the table.
"""
