#pragma once
// A group of real workers for tests: starts them and keeps what is reported about their ends.

#include <sys/prctl.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/workers/worker_processes.hpp"
#include "tests/unit/agent/workers/processes.hpp"

namespace agent_test {

using namespace ddprun;
using namespace ddprun::agent;

/// A worker group below this test, which adopts strays as an agent does.
struct Group {
    boost::asio::io_context io{1};
    Mark mark;
    Pipe out;
    Pipe err;
    Console console{io, out.write_end.get(), err.write_end.get()};
    std::map<int, ExitStatus> exits;
    std::set<int> ends_by_themselves;
    int reaped = 0;
    WorkerProcesses processes{io,
                              {[this](LocalRank rank, const ExitStatus& status, bool by_itself) {
                                   exits[number(rank)] = status;
                                   if (by_itself) ends_by_themselves.insert(number(rank));
                               },
                               [this] { ++reaped; }}};

    Group() {
        adopt_strays();
        out.write_end.reset();  // the console has its own
    }
    ~Group() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
    Result<void> start(std::vector<std::string> actions, const std::string& program = shapes(),
                       std::optional<WorkerFlightRecord> record = {}) {
        WorkerSpec spec;
        if (record) spec.record.emplace(std::move(*record));
        actions.insert(actions.begin(), program);
        spec.argv = std::move(actions);
        spec.error_file = ErrorFile::in_memory().value();
        spec.environment = {mark.assignment(), "TORCHELASTIC_ERROR_FILE=" + spec.error_file->path()};
        spec.out.console = spec.err.console = &console;
        spec.err.stream = Console::Stream::kErr;
        spec.err.keep_tail = true;
        return processes.start(std::move(spec));
    }
    /// Runs the loop until `condition`; false after 20 s.
    bool until(const std::function<bool()>& condition) {
        return eventually([&] {
            io.restart();
            io.run_for(std::chrono::milliseconds(5));
            return condition();
        });
    }
    bool all_reaped() {
        return until([this] { return reaped > 0; });
    }
    [[nodiscard]] std::size_t living() const { return mark.processes().size(); }
};

}  // namespace agent_test
