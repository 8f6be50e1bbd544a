"""Write one line of workflow DSL for a problem: the language, its outcome table and the task.

    ast.py             the records of a workflow, and what may stand inside what
    parser.py          text -> Workflow, or DslError with a position
    printer.py         Workflow -> the one canonical text
    structure.py       structure class and operators of a workflow
    calibration.py     counts taken from the log of P30: data only
    distribution.py    a distribution over the five reward levels
    rule.py            the stated rule for patterns that the log does not cover
    outcomes.py        (domain, workflow) -> distribution: the table where it covers, the rule elsewhere
    problems.py        seeded problem texts from a small closed vocabulary
    prompts.py         the two prompt styles
    demonstrations.py  lines to warm-start the built-in model on
    tables.py          the tables of document 000, sections 3.1 to 3.4
    task.py            WorkflowDslTask

No torch here, and no workflow is ever executed: rewards come from the table.
"""
