"""Checks of a client's record, one for each outcome of `failure_table`.

A check is a generator of what is wrong; it has the name of its outcome.
"""

import failure_table as table


class Observed:
    """Events that a client recorded in a cell: [seconds, word, ...], and when the fault began and ended."""

    def __init__(self, cell, record):
        self.cell, self.record = cell, record
        self.begin, self.end = cell.begin, cell.end
        self.during = [e for e in record if self.begin <= e[0] < self.end]
        self.after = [e for e in record if e[0] >= self.end]

    def all(self, word, events=None):
        return [e for e in (self.record if events is None else events) if e[1] == word]

    def first(self, word, events, later_than=0.0):
        return next((e for e in events if e[1] == word and e[0] > later_than), None)

    def task(self):
        return "/job:{}/replica:0/task:{}".format(*self.cell.task.split(":"))

    def gap(self):
        """The longest time without a step since the fault began, and its beginning."""
        steps = [e[0] for e in self.all("step")]
        pairs = [(b - a, a - self.begin) for a, b in zip(steps, steps[1:]) if b > self.begin]
        return max(pairs, default=(float("inf"), 0))


def problems(outcome, cell, record):
    """Deviations of a client's record from the expected outcome."""
    observed = Observed(cell, record)
    found = [*counts(observed, outcome), *closes(observed), *globals()[outcome](observed)]
    if table.is_reported(cell.row, outcome):
        found += reports(observed)
    return found[:4]


def counts(observed, outcome):
    """Every step adds one: a successful step exactly once, a failed step at most once."""
    last, failures, has_new_state = None, 0, False
    for e in observed.record:
        if e[1] in ("error", "session"):
            failures += 1
        if e[1] != "step":
            continue
        if last is not None and not 1 <= e[2] - last <= 1 + failures:
            if e[2] > last or has_new_state or outcome not in table.LOSES_STATE:
                yield f"after {last} came {e[2]}, and {failures} failures between"
            has_new_state = True
        last, failures = e[2], 0


def closes(observed):
    for e in observed.all("closed"):
        if e[2] > table.CLOSED_MAX:
            yield f"closing took {e[2]:.2f} s"


def reports(observed):
    at = observed.cell.reported
    if at is None:
        yield "no log says that the task is silent"
    elif at - observed.begin > table.REPORTED_MAX:
        yield f"silence was reported only after {at - observed.begin:.2f} s"


def no_errors(observed):
    for e in observed.all("error")[:1]:
        yield f"an error, {e[0] - observed.begin:.2f} s after the fault: {e[2:]}"


def same_session(observed):
    if len(observed.all("session")) > 1:
        yield "the client opened a new session"


def on(observed):
    yield from no_errors(observed)
    yield from same_session(observed)
    length, since = observed.gap()
    if length > table.GAP_MAX:
        yield f"no step for {length:.2f} s, from {since:.2f} s on"


def turned_back(observed):
    yield from on(observed)


def heals(observed):
    yield from no_errors(observed)
    yield from same_session(observed)
    healed = observed.first("step", observed.after)
    if healed is None:
        yield "no step succeeded after the fault"
    elif healed[0] - observed.end > observed.cell.fault.heals_within:
        yield f"the first step succeeded only {healed[0] - observed.end:.2f} s after the fault"


def slow(observed):
    yield from no_errors(observed)
    yield from same_session(observed)
    length, _ = observed.gap()
    if length > table.SLOW_MAX:
        yield f"a step took {length:.2f} s"


def blocked(observed):
    yield from no_errors(observed)
    if observed.first("step", observed.during, observed.begin + 0.5):
        yield "steps continue without the master"


def waits(observed):
    yield from blocked(observed)
    name = observed.task()
    if not any(f"waits for {name}" in log for log in observed.cell.logs()):
        yield f"no log says that a session waits for {name}"


def fails(observed, within=table.NOTICED_MAX):
    errors = observed.all("error", observed.during)
    if not errors:
        yield f"no step failed: {observed.during[-2:]}"
        return
    if errors[0][0] - observed.begin > within:
        yield f"the first error came only after {errors[0][0] - observed.begin:.2f} s"
    for _, _, code, text, took in errors:
        if code != "UNAVAILABLE" or observed.task() not in text:
            yield f"not UNAVAILABLE and the task's name, but {code}: {text}"
        if took > within:
            yield f"a step took {took:.2f} s to fail"


def fails_then_new(observed):
    yield from fails(observed)
    yield from new_session(observed, {"ABORTED", "UNAVAILABLE"})


def cut_then_new(observed):
    yield from new_session(observed, {"ABORTED", "UNAVAILABLE"})


def aborted(observed):
    yield from new_session(observed, {"ABORTED"})


def new_session(observed, codes):
    """Once the task is back, the old session's steps end with one of `codes` and a new one trains."""
    met = {e[2] for e in observed.all("error", observed.after)}
    if not met or not met <= codes:
        yield f"the old session's steps ended with {met or 'nothing'}, not {codes}"
    session = observed.first("session", observed.after)
    if not session or not observed.first("step", observed.after, session[0]):
        yield f"a new session does not train: {observed.after[-2:]}"


def lost_then_same(observed):
    yield from fails(observed, table.LIMIT + table.LIMIT_SLACK)
    yield from same_session(observed)
    again = observed.first("step", observed.after)
    if again is None or again[0] - observed.end > table.BACK_MAX:
        yield f"the session does not work again: {observed.after[:3]}"


def recovers(observed):
    yield from no_errors(observed)
    session = observed.first("session", observed.record, observed.begin)
    if session is None:
        yield "there is no new session"
        return
    trains = observed.first("step", observed.after, session[0])
    if trains is None:
        yield f"no step of the new session succeeded: {observed.after[-2:]}"
    elif trains[0] - observed.end > table.BACK_MAX:
        yield f"the new session trains only {trains[0] - observed.end:.2f} s after the fault"


def restored(observed):
    yield from recovers(observed)


def refused(record):
    """The client that requested too much memory got RESOURCE_EXHAUSTED, and nothing else."""
    codes = [e[2] for e in record if e[1] == "error"]
    if codes != ["RESOURCE_EXHAUSTED"]:
        yield f"the client that requested too much memory got {codes}"
