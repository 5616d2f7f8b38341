python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state \
    --input_folder run/global_step2 --output_folder run/universal_step2
