#pragma once
// Graph: what has been enqueued on captured streams, as one list, and its launches. A launch puts the list on streams
// of its own, one for each captured stream, with the waits that were captured and no others, so that ThreadSanitizer
// sees whether the graph orders its work. Host threads only.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fake_gpu/device.hpp"

namespace ddp::fake {

/// Returns the task of one launch.
using MakeTask = std::function<std::function<void()>()>;

class Graph {
public:
    explicit Graph(Device& device) : device_(device) {}

    // Captured streams are numbered from 0, the one that is ended.
    void add_task(std::size_t stream, MakeTask make, std::vector<Block*> memory);
    /// Returns the number of the mark.
    std::size_t add_mark(std::size_t stream);
    void add_wait(std::size_t stream, std::size_t mark);
    /// Keeps `owner` until the graph and its instances are gone.
    void keep(std::shared_ptr<void> owner) { owners_.push_back(std::move(owner)); }
    /// Returns whether all that is on other streams comes before the end of stream 0.
    [[nodiscard]] bool is_joined() const;

private:
    friend class GraphInstance;
    struct Step {
        std::size_t stream = 0;
        MakeTask make;  ///< a task; empty: a mark, or a wait for one
        std::vector<Block*> memory;
        bool waits = false;
        std::size_t mark = 0;
    };
    Device& device_;
    std::size_t streams_ = 1;
    std::size_t marks_ = 0;
    std::vector<Step> steps_;
    std::vector<std::shared_ptr<void>> owners_;
};

class GraphInstance {
public:
    explicit GraphInstance(std::shared_ptr<const Graph> graph);
    /// Launches the graph behind the tasks of `stream`, which goes on behind it.
    void launch(Stream& stream);
    /// Ends the instance when its last launch has ended, and does not wait for that.
    static void destroy(std::unique_ptr<GraphInstance> instance);

private:
    std::shared_ptr<const Graph> graph_;
    std::vector<Stream*> streams_;
    Completion last_;
};

}  // namespace ddp::fake
