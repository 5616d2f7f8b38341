"""Once after a crash, before the workers start again: what was interrupted is queued to run from its beginning."""
from optuna.trial import TrialState
from worker import open_study

# --8<-- [start:recover]
study = open_study()
for trial in study.get_trials(states=(TrialState.RUNNING,)):  # no worker runs now, so these are of dead ones
    study.tell(trial.number, state=TrialState.FAIL)
    study.enqueue_trial(trial.params)
# --8<-- [end:recover]
finished = len(study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED)))
print(f"{finished} finished, {len(study.get_trials(states=(TrialState.WAITING,)))} to run again")
