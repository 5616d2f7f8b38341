"""History, importance and slices of a search, also while it runs: python plots.py"""
import matplotlib

matplotlib.use("Agg")  # without a display
import matplotlib.pyplot as plt
import optuna
from worker import open_study

# --8<-- [start:plots]
study = open_study()
draw = optuna.visualization.matplotlib
for name, plot in (("history", draw.plot_optimization_history), ("importance", draw.plot_param_importances),
                   ("slices", draw.plot_slice), ("curves", draw.plot_intermediate_values)):
    plot(study)
    plt.savefig(f"{name}.png")
    plt.close("all")
for name, share in optuna.importance.get_param_importances(study).items():
    print(f"{name}: {share:.0%}")
# --8<-- [end:plots]
