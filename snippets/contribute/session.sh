python3 -m gpu_steps.session --dry      # what would run, in which order
python3 -m gpu_steps.session --seconds 840  # then out/session holds records, notebooks and logs
