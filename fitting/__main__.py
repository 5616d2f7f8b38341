"""Fits the constants and judges every published row by those that had not seen it: `python -m fitting`."""

from . import fit, judged, published

if __name__ == "__main__":
    fit.main()
    judged.write(published.rows())
