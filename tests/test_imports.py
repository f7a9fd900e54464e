"""The house: no import cycles, and a package knows only those below it."""

from imports import ORDER, PACKAGE, arrows, room


def test_no_import_cycles_between_files():
    todo, open_now, done = arrows(), [], set()

    def visit(module):
        assert module not in open_now, " -> ".join([*open_now[open_now.index(module) :], module])
        if module in done:
            return
        open_now.append(module)
        for other in sorted(todo[module]):
            visit(other)
        done.add(open_now.pop())

    for module in todo:
        visit(module)
    assert done == set(todo)


def test_a_package_imports_only_those_below_it():
    upward = [
        f"{module} imports {other}"
        for module, others in arrows().items()
        for other in others
        if room(module) and (not room(other) or ORDER.index(room(other)) > ORDER.index(room(module)))
    ]
    assert not upward, upward


def test_the_top_of_the_package_holds_the_neuron_alone():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "neuron.py", "neuron_init.py"}
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert packages == set(ORDER) - {"neuron"}
