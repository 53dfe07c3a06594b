#include "tests/fake_gpu/stream.hpp"

#include <pthread.h>

#include <thread>
#include <utility>

#include "common/system/signals_blocked.hpp"

namespace ddp::fake {
namespace {

thread_local bool is_stream = false;

}  // namespace

Stream::Stream(Device& device, bool blocking) : device_(device), blocking_(blocking) {
    const ddprun::SignalsBlocked signals_blocked;  // they are the program's
    std::thread([this] { run(); }).detach();
}

bool Stream::runs_this_thread() { return is_stream; }

void Stream::push(std::function<void()> run, std::vector<Block*> memory) {
    unseen_add(tasks_pushed_, 1);
    for (Block* const block : memory) block->tasks_in_flight.fetch_add(1, std::memory_order_relaxed);
    push(new Task{.run = std::move(run), .memory = std::move(memory)});
}

void Stream::push(Task* task) {
    release_to(task);
    unseen_prepend(tasks_, task);
    unseen_add(pushes_, 1);
    futex_wake_all(&pushes_);
}

Completion Stream::mark() {
    Completion end = Completion::pending();
    push(new Task{.run = [end] { end.complete(); }, .memory = {}});
    return end;
}

void Stream::wait_for(Completion completion) {
    push([completion = std::move(completion)] { completion.wait(); });
}

void Stream::close() {
    auto* const task = new Task;
    task->last = true;
    push(task);
}

void Stream::run() {
    is_stream = true;
    ::pthread_setname_np(::pthread_self(), "fake-stream");
    for (bool open = true; open;) {
        const UnseenWord pushes = unseen_load(pushes_);
        Task* task = unseen_take_all(tasks_);
        if (task == nullptr) futex_wait(&pushes_, pushes);
        while (task != nullptr) {
            Task* const next = unseen_next(*task);
            // One by one: if the list was acquired as a whole, the first task would see what its pusher did later.
            acquire_from(task);
            open = !task->last;
            run(task);
            task = next;
        }
    }
}

void Stream::run(Task* task) {
    if (task->run) task->run();
    for (Block* const block : task->memory) block->tasks_in_flight.fetch_sub(1, std::memory_order_relaxed);
    delete task;
}

}  // namespace ddp::fake
