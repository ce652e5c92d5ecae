"""What must hold of a client's record for each outcome of `failure_table`.

A check is a generator of what is wrong; it has the name of its outcome.
"""

import failure_table as table


class Seen:
    """What a client saw of a cell: events [seconds, word, ...], and when the fault began and ended."""

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
    """What is wrong with a client's record if this is what it may see."""
    seen = Seen(cell, record)
    found = [*counts(seen, outcome), *closes(seen), *globals()[outcome](seen)]
    if table.is_reported(cell.row, outcome):
        found += reports(seen)
    return found[:4]


def counts(seen, outcome):
    """Every step adds one: one that succeeded once, one that failed at most once."""
    last, failures, has_new_state = None, 0, False
    for e in seen.record:
        if e[1] in ("error", "session"):
            failures += 1
        if e[1] != "step":
            continue
        if last is not None and not 1 <= e[2] - last <= 1 + failures:
            if e[2] > last or has_new_state or outcome not in table.LOSES_STATE:
                yield f"after {last} came {e[2]}, and {failures} failures between"
            has_new_state = True
        last, failures = e[2], 0


def closes(seen):
    for e in seen.all("closed"):
        if e[2] > table.CLOSED_MAX:
            yield f"closing took {e[2]:.2f} s"


def reports(seen):
    at = seen.cell.reported
    if at is None:
        yield "no log says that the task is silent"
    elif at - seen.begin > table.REPORTED_MAX:
        yield f"silence was reported only after {at - seen.begin:.2f} s"


def no_errors(seen):
    for e in seen.all("error")[:1]:
        yield f"an error came, {e[0] - seen.begin:.2f} s after the fault: {e[2:]}"


def same_session(seen):
    if len(seen.all("session")) > 1:
        yield "it needed a new session"


def on(seen):
    yield from no_errors(seen)
    yield from same_session(seen)
    length, since = seen.gap()
    if length > table.GAP_MAX:
        yield f"no step for {length:.2f} s, from {since:.2f} s on"


def turned_back(seen):
    yield from on(seen)


def heals(seen):
    yield from no_errors(seen)
    yield from same_session(seen)
    healed = seen.first("step", seen.after)
    if healed is None:
        yield "it does not heal"
    elif healed[0] - seen.end > seen.cell.fault.heals_within:
        yield f"it healed only {healed[0] - seen.end:.2f} s after the fault"


def slow(seen):
    yield from no_errors(seen)
    yield from same_session(seen)
    length, _ = seen.gap()
    if length > table.SLOW_MAX:
        yield f"a step took {length:.2f} s"


def blocked(seen):
    yield from no_errors(seen)
    if seen.first("step", seen.during, seen.begin + 0.5):
        yield "it goes on without its master"


def waits(seen):
    yield from blocked(seen)
    name = seen.task()
    if not any(f"waits for {name}" in log for log in seen.cell.logs()):
        yield f"no log says that a session waits for {name}"


def fails(seen, within=table.NOTICED_MAX):
    errors = seen.all("error", seen.during)
    if not errors:
        yield f"no error came: {seen.during[-2:]}"
        return
    if errors[0][0] - seen.begin > within:
        yield f"it was noticed only after {errors[0][0] - seen.begin:.2f} s"
    for _, _, code, text, took in errors:
        if code != "UNAVAILABLE" or seen.task() not in text:
            yield f"not UNAVAILABLE and the task's name, but {code}: {text}"
        if took > within:
            yield f"a step took {took:.2f} s to fail"


def fails_then_new(seen):
    yield from fails(seen)
    yield from new_session(seen, {"ABORTED", "UNAVAILABLE"})


def cut_then_new(seen):
    yield from new_session(seen, {"ABORTED", "UNAVAILABLE"})


def aborted(seen):
    yield from new_session(seen, {"ABORTED"})


def new_session(seen, codes):
    """Once the task is back, the old session's steps end with one of `codes` and a new one trains."""
    met = {e[2] for e in seen.all("error", seen.after)}
    if not met or not met <= codes:
        yield f"the old session's steps ended with {met or 'nothing'}, not {codes}"
    session = seen.first("session", seen.after)
    if not session or not seen.first("step", seen.after, session[0]):
        yield f"a new session does not train: {seen.after[-2:]}"


def lost_then_same(seen):
    yield from fails(seen, table.LIMIT + table.LIMIT_SLACK)
    yield from same_session(seen)
    again = seen.first("step", seen.after)
    if again is None or again[0] - seen.end > table.BACK_MAX:
        yield f"the session does not work again: {seen.after[:3]}"


def recovers(seen):
    yield from no_errors(seen)
    session = seen.first("session", seen.record, seen.begin)
    if session is None:
        yield "there is no new session"
        return
    trains = seen.first("step", seen.after, session[0])
    if trains is None:
        yield f"it does not train again: {seen.after[-2:]}"
    elif trains[0] - seen.end > table.BACK_MAX:
        yield f"it trains only {trains[0] - seen.end:.2f} s after the fault"


def restored(seen):
    yield from recovers(seen)


def refused(record):
    """Who asked for more than there is was told so, and no more than that happened."""
    codes = [e[2] for e in record if e[1] == "error"]
    if codes != ["RESOURCE_EXHAUSTED"]:
        yield f"who asked for too much memory was told {codes}"
