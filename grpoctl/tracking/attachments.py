"""What MLflow gets of a run or study beside params, metrics and plain files: description, data set, tables, model.

What is here: writing each of them once, however often it is called, by looking at what is there. What is not: what they
say (description), and when they are written (writer, sweep_writer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from grpoctl.files import read_json, read_rows
from grpoctl.runs.problems import read_problems
from grpoctl.runs.run_dir import RunDir
from grpoctl.tracking import description
from grpoctl.tracking.payload import digest

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run
    from mlflow.tracking import MlflowClient

EXPORT_NOTE = "grpoctl.json"  # in the folder of a run's weights, once that is whole
_CARDS = ("README.md", "adapter_config.json", EXPORT_NOTE)  # what is small of a model's folder
KIND_TAG = "mlflow.experimentKind"  # MLflow's own: without it its pages may take a study for agents' traces
# A server that is older than logged models, or has none.
_NO_MODELS = ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED", "FEATURE_DISABLED")


def note_tags(text: str, present: Mapping[str, str]) -> dict[str, str]:
    """The tags that make this text the description; none where it is there, or where a person has written another."""
    there, written = present.get(description.NOTE_TAG), present.get(description.WRITTEN_TAG)
    if there == text or (there and digest(there) != written):
        return {}
    return {description.NOTE_TAG: text, description.WRITTEN_TAG: digest(text)}


def describe_experiment(client: MlflowClient, experiment_id: str, text: str) -> None:
    """Make this text the description of an experiment, unless a person has written another; and its kind training."""
    present = client.get_experiment(experiment_id).tags
    tags = note_tags(text, present)
    if KIND_TAG not in present:
        tags[KIND_TAG] = "custom_model_development"
    for key, value in tags.items():
        client.set_experiment_tag(experiment_id, key, value)


def log_data(client: MlflowClient, run: Run, spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
    """Log the data of the run's task as an input, once; another attempt may have read other data."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = Dataset(**description.dataset(spec, provenance))
    there = run.inputs.dataset_inputs if run.inputs else []
    if all((entry.dataset.name, entry.dataset.digest) != (data.name, data.digest) for entry in there):
        context = InputTag(key="mlflow.data.context", value="training")
        client.log_inputs(run.info.run_id, datasets=[DatasetInput(dataset=data, tags=[context])])


def log_tables(client: MlflowClient, run_id: str, run: RunDir, result: Mapping[str, Any]) -> None:
    """Write the newest samples, and the held-out answers before and after, as tables that MLflow's pages show."""
    best = (result.get("best") or {}).get("step")
    asked = read_problems(run)
    answers = [] if asked is None else asked.to_pylist()
    tables = {
        description.SAMPLES: description.table(read_rows(run.samples)[-description.MOST_ROWS :]),
        description.PROBLEMS: description.table(description.problem_rows(answers, best)),
    }
    written = [name for name, text in tables.items() if text is not None]
    for name in written:
        client.log_text(run_id, tables[name] or "", name)  # in its place: it is written whole each time
    if written:
        client.set_tag(run_id, description.TABLES_TAG, description.logged_tables(written))


def log_model(client: MlflowClient, run: Run, directory: RunDir, spec: Mapping[str, Any]) -> None:
    """Tell MLflow of the run's weights as a model of its own, linked to the run: where they are, not a second copy.

    A process that was killed between two of these calls leaves a model that the next one finds by its run.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException

    note = read_json(directory.adapter / EXPORT_NOTE)
    if note is None:
        return
    run_id, experiment = run.info.run_id, run.info.experiment_id
    try:
        known = client.search_logged_models([experiment], filter_string=f"source_run_id = '{run_id}'")
        model = known[0] if known else _new_model(client, run, directory, spec, note)
        if str(model.status) != "READY":
            for name in _CARDS:
                if (file := directory.adapter / name).is_file():
                    client.log_model_artifact(model.model_id, str(file))
            client.finalize_logged_model(model.model_id, "READY")
        linked = run.outputs.model_outputs if run.outputs else []
        if all(output.model_id != model.model_id for output in linked):
            client.log_outputs(run_id, [LoggedModelOutput(model_id=model.model_id, step=int(note.get("step") or 0))])
    except MlflowException as error:
        if error.error_code not in _NO_MODELS:
            raise
    client.set_tag(run_id, "grpoctl.weights", str(directory.adapter))


def _new_model(
    client: MlflowClient, run: Run, directory: RunDir, spec: Mapping[str, Any], note: Mapping[str, Any]
) -> LoggedModel:
    adapter = (directory.adapter / "adapter_config.json").is_file()
    return client.create_logged_model(
        run.info.experiment_id,
        name=directory.id,
        source_run_id=run.info.run_id,
        model_type="adapter" if adapter else "weights",
        params={"base": str((spec.get("model") or {}).get("source")), "step": str(note.get("step"))},
        tags={"grpoctl.path": str(directory.adapter), "grpoctl.run_id": directory.id},
    )
