"""Fits the constants and judges every published row by those that had not seen it: `python -m fitting`. `python -m fitting memory` fits
what comes on top of the tensors alone, in two minutes."""

import sys

from . import fit, judged, kernel_tables, published, shared_memory

if __name__ == "__main__" and sys.argv[1:] == ["memory"]:
    fit.memory_alone()
elif __name__ == "__main__" and sys.argv[1:]:
    sys.exit(f"error: {' '.join(sys.argv[1:])}: python -m fitting takes no argument, or memory")
elif __name__ == "__main__":
    before, rows = judged.read(), published.rows()
    kernel_tables.main()
    fit.main()
    shared_memory.main()
    judged.write(rows)
    print("\n".join(judged.changes(before, judged.read(), {row["id"]: row["seconds"] for row in rows})))
