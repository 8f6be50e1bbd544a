"""Reward functions of a user's own, run in a process that can be killed.

judge.py           what a task uses: scores rows, retries them one by one, counts and logs what is lost
process.py         the process from our side: started, asked, waited for, ended
child.py           the process itself: it watches the worker, and ends with whoever started it
worker.py          `package.module:function` or `file.py:function` -> the function, one call after another -> numbers
"""
