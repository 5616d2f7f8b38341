"""Profiles three steps of a Trainer, prints the operators that take the time, and writes a trace."""
import torch
from torch.profiler import profile, schedule
from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainerCallback, TrainingArguments


# --8<-- [start:callback]
class ProfilerCallback(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        steps = schedule(wait=2, warmup=1, active=3, repeat=1)  # leave the first steps out: they are slower
        self.profile = profile(schedule=steps, on_trace_ready=self.show, record_shapes=True)
        self.profile.start()

    def on_step_end(self, args, state, control, **kwargs):
        self.profile.step()

    def on_train_end(self, args, state, control, **kwargs):
        self.profile.stop()

    def show(self, finished):
        by = "self_device_time_total" if torch.accelerator.is_available() else "self_cpu_time_total"
        print(finished.key_averages().table(sort_by=by, row_limit=8, max_name_column_width=40))
        finished.export_chrome_trace("trace.json")  # open it at https://ui.perfetto.dev
# --8<-- [end:callback]


if __name__ == "__main__":
    config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, vocab_size=256)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 256, (64, 32))]
    trainer = Trainer(
        model=AutoModelForCausalLM.from_config(config),
        args=TrainingArguments("out", max_steps=8, save_strategy="no", report_to="none"),
        train_dataset=rows,
        callbacks=[ProfilerCallback],
    )
    trainer.train()
