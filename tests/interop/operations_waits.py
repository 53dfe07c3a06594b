"""Operations that wait: who is released when, and what a client can do after it gave up."""

import time
from datetime import timedelta

from operation import LONG, SHORT, attempt, later, operation, together


@operation()
def waiting_for_what_is_there(open):
    store = open()
    store.set("a", "1")
    store.add("b", 0)
    return store.wait(["a"]), store.wait(["a", "b", "a"]), store.wait([]), store.wait(["b"], LONG)


@operation()
def waiting_ends_when_the_last_key_comes(open):
    waiting, other = open(), open()

    def arrive():
        for key in ("a", "c", "b"):
            time.sleep(0.05)
            other.set(key, "1")
        return other.get("b")

    return together(lambda: waiting.wait(["a", "b", "c", "b"], LONG), arrive)


@operation()
def a_key_that_came_and_went_has_come(open):
    waiting, other = open(), open()

    def arrive():
        time.sleep(0.5)  # in which the wait begins, on a busy machine too
        other.set("a", "1")
        gone = other.delete_key("a")
        other.set("b", "1")
        return gone

    return together(lambda: waiting.wait(["a", "b"], LONG), arrive)


@operation()
def get_waits(open):
    waiting, other = open(), open()
    return together(lambda: waiting.get("key"), later(other.set, "key", "at last"))


@operation()
def add_ends_a_wait(open):
    waiting, other = open(), open()
    return together(lambda: waiting.wait(["key"], LONG), later(other.add, "key", 0))


@operation()
def one_key_releases_everybody(open):
    clients = [open() for _ in range(16)]
    other = open()
    return together(*[lambda c=c: c.get("key") for c in clients], later(other.set, "key", "go"))


@operation()
def a_wait_times_out_and_the_client_goes_on(open):
    store, other = open(), open()
    answers = [attempt(store.wait, ["never"], SHORT)]
    store.set_timeout(LONG)
    store.set("own", "1")
    answers += [store.get("own"), store.add("n", 3), store.num_keys(), attempt(store.wait, ["never", "own"], SHORT)]
    store.set_timeout(LONG)
    other.set("n2", "5")
    return answers, other.get("n2"), store.get("n2"), store.delete_key("own")


@operation(
    differs={"1.13": "its client gives up in silence; a server that keeps the wait answers it later, out of place"}
)
def a_client_that_gave_up_sets_the_key_itself(open):
    store = open()
    gave_up = attempt(store.wait, ["key"], SHORT)
    store.set_timeout(timedelta(seconds=1))
    store.set("key", "value")
    return gave_up, store.get("key"), store.add("n", 2), store.num_keys()


@operation()
def get_times_out_by_the_clients_own_timeout(open):
    store = open()
    store.set_timeout(SHORT)
    answer = attempt(store.get, "never")
    store.set_timeout(LONG)
    return answer, store.num_keys()


@operation(needs="check")
def checking(open):
    store = open()
    before = store.check(["a"]), store.check([]), store.check(["a", "b"])
    store.set("a", "")
    return before, store.check(["a"]), store.check(["a", "b"]), store.check(["a", "a"])
