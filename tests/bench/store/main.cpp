// bench_store: one client, several servers, one run. See tests/bench/README.md.
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "tests/bench/store/report.hpp"
#include "tests/bench/store/run.hpp"
#include "tests/bench/store/scripts.hpp"
#include "tests/bench/store/serve.hpp"

namespace {

using namespace ddprun::bench;

/// Small enough to stay in the cache.
constexpr std::size_t kHotBytes = std::size_t{256} << 10;

void serve(const std::string& mode) {
    if (mode == "echo") serve_echo();
    if (mode == "gate") serve_gate();
    serve_plain(mode == "plain" ? kLargeValueBytes : kHotBytes);
}

/// Ten thousand connections, and the servers inherit it.
void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Measures our store beside an echo server, redis and PyTorch's store, in one run.", "bench_store");
    RunOptions options;
    bool quick = false, list = false;
    std::string json_path, serve_mode;
    app.add_option("--only", options.only, "these workloads (or all whose names begin so)")->type_name("NAME...");
    app.add_option("--rounds", options.rounds, "how often each server is measured")->capture_default_str();
    app.add_option("--seconds", options.scale.seconds, "of one timed measurement")->capture_default_str();
    app.add_flag("--quick", quick, "shorter and smaller: does it work, not how fast is it");
    app.add_flag("!--no-pin", options.servers.pin, "let the client and the servers run on any CPU");
    app.add_option("--ddprund", options.servers.ddprund,
                   "measure this one instead of the one that was built with the benchmark");
    app.add_option("--before", options.servers.before, "another ddprund, measured as well: did a change help?");
    app.add_option("--torch-python", options.servers.torch_python, "a python with a newer PyTorch, measured as well");
    app.add_option("--without", options.without, "leave these servers out")->type_name("SERVER...");
    app.add_option("--json", json_path, "write the figures there as well")->type_name("FILE");
    app.add_flag("--list", list, "print the names of the workloads");
    app.add_option("--serve", serve_mode, "be one of the servers")
        ->group("")
        ->check(CLI::IsMember({"echo", "gate", "plain", "plain-hot"}));
    CLI11_PARSE(app, argc, argv);
    try {
        if (!serve_mode.empty()) serve(serve_mode);
        raise_descriptor_limit();
        if (quick) options.rounds = 1, options.scale = {.seconds = 0.05, .quick = true};
        if (list) {
            for (const Workload& workload : all_workloads(options.scale))
                fmt::print("{:<12} {}\n", workload.name, workload.title);
            return 0;
        }
        const Report report = run(options);
        if (!json_path.empty()) write_json(json_path, report);
        return 0;
    } catch (const std::exception& error) {
        fmt::print(stderr, "bench_store: {}\n", error.what());
        return 1;
    }
}
