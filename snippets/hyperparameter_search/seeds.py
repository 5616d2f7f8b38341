"""Is the winner better than luck? Two settings on seeds that the search has not used, pair by pair."""
import itertools

from task import arguments_for, held_out, model_init, train_rows
from transformers import Trainer

SEEDS = range(100, 106)  # the search used 42, Trainer's default
BEFORE = {"learning_rate": 1e-3}
WINNER = {"learning_rate": 1e-2, "weight_decay": 0.1, "warmup_steps": 0.1, "adam_beta2": 0.99}


def loss(chosen, seed):
    trainer = Trainer(model_init=model_init, args=arguments_for("out", seed=seed, eval_strategy="no", **chosen),
                      train_dataset=train_rows, eval_dataset=held_out)
    trainer.train()
    return trainer.evaluate()["eval_loss"]


# --8<-- [start:test]
def by_luck(differences):
    """How often random signs give a sum as large: the p-value of a paired permutation test, two-sided, exact."""
    sums = [sum(sign * each for sign, each in zip(signs, differences))
            for signs in itertools.product((1, -1), repeat=len(differences))]
    return sum(abs(each) >= abs(sum(differences)) - 1e-12 for each in sums) / len(sums)


differences = [loss(BEFORE, seed) - loss(WINNER, seed) for seed in SEEDS]
mean = sum(differences) / len(differences)
print(f"better by {mean:.3f} nats per byte, from {min(differences):.3f} to {max(differences):.3f}")
print(f"p = {by_luck(differences):.3f}")
# --8<-- [end:test]
