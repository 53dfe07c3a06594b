#include "tests/fake_gpu/graph.hpp"

#include <algorithm>
#include <thread>

#include "common/system/signals_blocked.hpp"

namespace ddp::fake {

void Graph::add_task(std::size_t stream, MakeTask make, std::vector<Block*> memory) {
    streams_ = std::max(streams_, stream + 1);
    steps_.push_back({.stream = stream, .make = std::move(make), .memory = std::move(memory)});
}

std::size_t Graph::add_mark(std::size_t stream) {
    streams_ = std::max(streams_, stream + 1);
    steps_.push_back({.stream = stream, .make = {}, .memory = {}, .mark = marks_});
    return marks_++;
}

void Graph::add_wait(std::size_t stream, std::size_t mark) {
    streams_ = std::max(streams_, stream + 1);
    steps_.push_back({.stream = stream, .make = {}, .memory = {}, .waits = true, .mark = mark});
}

bool Graph::is_joined() const {
    // Backwards: a stream is reached from the last mark of it that a reached stream waits for.
    std::vector<bool> reached(streams_, false);
    std::vector<bool> awaited(marks_, false);
    reached[0] = true;
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
        const bool is_mark = !step->make && !step->waits;
        if (is_mark && awaited[step->mark]) reached[step->stream] = true;
        if (step->waits && reached[step->stream]) awaited[step->mark] = true;
        if (step->make && !reached[step->stream]) return false;
    }
    return true;
}

GraphInstance::GraphInstance(std::shared_ptr<const Graph> graph) : graph_(std::move(graph)) {
    for (std::size_t i = 0; i < graph_->streams_; ++i) streams_.push_back(&graph_->device_.create_stream(false));
}

void GraphInstance::launch(Stream& stream) {
    Device& device = graph_->device_;
    const Completion begin = device.record(stream);
    for (Stream* const own : streams_) own->wait_for(begin);
    std::vector<Completion> marks(graph_->marks_);
    for (const Graph::Step& step : graph_->steps_) {
        Stream& own = *streams_[step.stream];
        if (step.make) {
            device.push(own, step.make(), step.memory);
        } else if (step.waits) {
            own.wait_for(marks[step.mark]);
        } else {
            marks[step.mark] = device.record(own);
        }
    }
    last_ = device.record(*streams_[0]);
    device.push(stream, [last = last_] { last.wait(); });
}

void GraphInstance::destroy(std::unique_ptr<GraphInstance> instance) {
    const ddprun::SignalsBlocked signals_blocked;  // they are the program's
    std::thread([ended = std::move(instance)] {
        ended->last_.wait_unseen();
        for (Stream* const own : ended->streams_) own->device().destroy_stream(*own);
    }).detach();
}

}  // namespace ddp::fake
