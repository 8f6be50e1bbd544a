"""A report of runs, experiments and studies: one document, shown as a page of HTML, as Markdown or as JSON."""
