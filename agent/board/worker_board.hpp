#pragma once
// WorkerBoard: the memory in which a worker writes down what it does. The agent makes it before the worker, so that it
// stays readable whatever becomes of that; the worker can neither shrink nor grow it.

#include <sys/types.h>

#include <cstddef>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/coordinator/messages_board.hpp"

namespace ddprun::board {
struct Board;
}

namespace ddprun::agent {

class WorkerBoard {
public:
    /// Errors: no descriptor or memory is left.
    [[nodiscard]] static Result<WorkerBoard> make();
    ~WorkerBoard();
    WorkerBoard(WorkerBoard&& other) noexcept;
    WorkerBoard& operator=(WorkerBoard&&) = delete;

    /// What the worker inherits, until handed_over().
    [[nodiscard]] int descriptor() const { return descriptor_.get(); }
    void handed_over() { descriptor_.reset(); }

    /// What it says now: the newest `most` operations, and up to 32 older ones that are in hand; all that are in hand
    /// when `most` is 0.
    [[nodiscard]] coordinator::BoardView view(std::size_t most) const;
    /// The process that writes it, as that says; 0: none so far.
    [[nodiscard]] pid_t writer() const;

private:
    WorkerBoard(UniqueFd descriptor, const board::Board* memory)
        : descriptor_(std::move(descriptor)), memory_(memory) {}

    UniqueFd descriptor_;
    const board::Board* memory_;
};

/// A board as plain values. `board` is what a process has written that may have scribbled anywhere: nothing in it is
/// believed, and whatever is out of range is left out. `now`: of this machine's clock.
[[nodiscard]] coordinator::BoardView read_board(const board::Board& board, TimePoint now, std::size_t most);

}  // namespace ddprun::agent
