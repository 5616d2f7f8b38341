# Runs a command with this folder's packages. jax 0.10 needs Python 3.11, and the image has the 3.10 of Ubuntu 22.04
if [ ! -d ~/venv ]; then
  curl -LsSf https://astral.sh/uv/install.sh | sh
  ~/.local/bin/uv venv --seed --python 3.12 ~/venv
fi
. ~/venv/bin/activate
bash install.sh
exec "$@"
