// A training for tests of preemption: each step computes and all-reduces, every third step evaluates, the next one
// saves. Its rank writes to LOGS/RANK when each phase began: "NANOSECONDS PHASE STEP", on the clock of all processes
// of this machine. At a notice of preemption all ranks save one more checkpoint and exit with 75.
//
// start       the process runs
// notice      the rank has notice of a preemption; written by a thread of its own within about a millisecond
// step        a step begins, with its computation
// collective  it all-reduces; rank 0 is the first to get here, and waits
// evaluation  it evaluates
// checkpoint  it saves
// agreement   it has done all of the step, and asks whether to stop
// stop        it stops, and has saved
// end         the process ends now
//
// usage: preemptible CHECKPOINTS LOGS

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

using namespace std::chrono_literals;

constexpr auto kCompute = 60ms;  // of rank 0
constexpr auto kLonger = 30ms;   // of each next rank
constexpr int kEvaluationBatches = 6;
constexpr auto kEvaluationBatch = 25ms;
constexpr std::size_t kValues = 1 << 21;  // 16 MB

/// Writes each line at once: a test reads the file meanwhile. Any thread.
class PhaseLog {
public:
    explicit PhaseLog(const std::filesystem::path& file)
        : file_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
    ~PhaseLog() { ::close(file_); }
    PhaseLog(const PhaseLog&) = delete;
    PhaseLog& operator=(const PhaseLog&) = delete;

    void write(std::string_view phase, std::uint64_t step) const {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        const std::string line = fmt::format("{} {} {}\n", std::chrono::nanoseconds(now).count(), phase, step);
        if (::write(file_, line.data(), line.size()) != std::ssize(line)) std::_Exit(EXIT_FAILURE);
    }

private:
    int file_;
};

/// The trained state: every element is the sum over all steps so far, which shows a step that is missing or is there
/// twice.
class State {
public:
    explicit State(ddp::Context& context) : context_(context) {}

    void train(std::uint64_t step) {
        double gradient = static_cast<double>(step) * (context_.rank() + 1);
        context_.world().all_reduce(gradient, ddp::ReduceOp::Sum, {.label = "gradients"}).wait();
        for (double& value : values_) value += gradient;
    }
    void require(std::uint64_t step) const {
        const int ranks = context_.world_size();
        const double expected = 0.5 * static_cast<double>(step * (step + 1)) * 0.5 * ranks * (ranks + 1);
        if (values_.front() != expected || values_.back() != expected)
            throw std::runtime_error(fmt::format("after step {} the state is {}, not {}", step, values_[0], expected));
    }
    [[nodiscard]] std::vector<ddp::NamedBuffer> buffers() { return {{"values", ddp::Buffer(values_)}}; }

private:
    ddp::Context& context_;
    std::vector<double> values_ = std::vector<double>(kValues);
};

void evaluate(ddp::Context& context) {
    for (int batch = 0; batch < kEvaluationBatches; ++batch) {
        std::this_thread::sleep_for(kEvaluationBatch);
        double loss = 1;
        context.world().all_reduce(loss, ddp::ReduceOp::Sum, {.label = "evaluation"}).wait();
    }
}

/// Trains until a notice of preemption. Returns the last step, which is saved.
std::uint64_t train(ddp::Context& context, const std::filesystem::path& checkpoints, const PhaseLog& log) {
    State state(context);
    ddp::Checkpointer checkpointer(checkpoints, context);
    const auto save = [&](std::uint64_t step) {
        log.write("checkpoint", step);
        checkpointer.save(step, state.buffers());
    };
    const std::uint64_t resumed = checkpointer.latest().value_or(0);
    if (resumed > 0) checkpointer.load(resumed, state.buffers());
    for (std::uint64_t step = resumed + 1;; ++step) {
        state.require(step - 1);
        log.write("step", step);
        std::this_thread::sleep_for(kCompute + context.rank() * kLonger);
        log.write("collective", step);
        state.train(step);
        if (step % 3 == 0) {
            log.write("evaluation", step);
            evaluate(context);
        }
        const bool saves = step % 3 == 1;
        if (saves) save(step);
        log.write("agreement", step);
        if (!ddp::agree_to_stop()) continue;
        if (!saves) save(step);
        log.write("stop", step);
        return step;
    }
}

std::uint64_t train(const std::filesystem::path& checkpoints, const PhaseLog& log) {
    ddp::Context context = ddp::init_from_env({.backend = ddp::Backend::Native});
    const std::jthread watch([&](const std::stop_token& stop) {
        while (!context.preempted() && !stop.stop_requested()) std::this_thread::sleep_for(1ms);
        if (context.preempted()) log.write("notice", 0);
    });
    return train(context, checkpoints, log);
}

int run(const std::filesystem::path& checkpoints, const std::filesystem::path& logs) {
    const char* const rank = std::getenv("RANK");
    if (rank == nullptr) throw std::runtime_error("no RANK: start this program by ddprun");
    const PhaseLog log(logs / rank);
    log.write("start", 0);
    log.write("end", train(checkpoints, log));
    return ddp::kPreemptedExitCode;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        return run(argv[1], argv[2]);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return EXIT_FAILURE;
    }
}
