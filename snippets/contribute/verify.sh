NOTEBOOKS=memory_anatomy make verify                # a table for people
python3 -m evidence verify --json memory_anatomy    # and for programs
