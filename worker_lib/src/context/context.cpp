#include "ddp/context.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/system/standard_fds.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"
#include "worker_lib/src/bootstrap/init_rounds.hpp"
#include "worker_lib/src/bootstrap/local_store.hpp"
#include "worker_lib/src/bootstrap/store_adapter.hpp"
#include "worker_lib/src/bootstrap/take_secret.hpp"
#include "worker_lib/src/context/backend_choice.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/group/store_wait.hpp"
#include "worker_lib/src/native/native.hpp"
#include "worker_lib/src/nccl/nccl.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp {

namespace {

using detail::GroupSpec;
using std::chrono::milliseconds;

// PyTorch's defaults.
constexpr milliseconds kNcclTimeout = std::chrono::minutes(10);
constexpr milliseconds kNativeTimeout = std::chrono::minutes(30);
constexpr std::chrono::seconds kUntilTheReportHasEnded{2};  // the launcher reports the first rank that ends

GroupSpec world_spec(const Environment& environment, std::shared_ptr<Store> store, const InitOptions& options) {
    GroupSpec spec;
    spec.name = "world";
    spec.rank = environment.rank;
    spec.members.resize(static_cast<std::size_t>(environment.world_size));
    std::iota(spec.members.begin(), spec.members.end(), 0);
    spec.node_rank = environment.node_rank;
    spec.generation = environment.generation;
    spec.session = environment.session;
    spec.secret = environment.secret;
    spec.world_size = environment.world_size;
    spec.store = std::move(store);
    spec.init_timeout = detail::bounded(options.init_timeout);
    spec.device = options.device;
    return spec;
}

/// Chooses the backend, the same on every rank. A rank that requests the native one waits for no report. It publishes
/// its own, so that ranks that request another one fail at once instead of waiting for it.
/// Sets spec.device.
Backend agree_on_backend(GroupSpec& spec, Backend asked, int local_rank) {
    const detail::BackendReport own = detail::report_here(asked, spec.device, local_rank);
    const std::string report = encode(own);
    spec.device = own.device;
    if (asked == Backend::Native) {
        detail::publish(spec, "backend", report);
        return asked;
    }
    std::vector<detail::BackendReport> reports;
    for (const auto& text : detail::exchange(spec, "backend", report)) reports.push_back(detail::decode_report(text));
    const auto choice = detail::decide_backend(reports);
    static std::atomic<bool> printed = false;
    if (spec.rank == 0 && !choice.line.empty() && !printed.exchange(true))
        std::fputs(fmt::format("[ddp] {}\n", choice.line).c_str(), stderr);
    return choice.backend;
}

/// Ignores SIGUSR1 if this process does not handle it: a scheduler announces a preemption by it to every process of a
/// job, and it would end them.
void survive_notices() {
    struct sigaction action {};
    if (detail::process_recorder() == nullptr || ::sigaction(SIGUSR1, nullptr, &action) != 0) return;
    if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL) ::signal(SIGUSR1, SIG_IGN);
}

void check(const InitOptions& options) {
    if (options.timeout && options.timeout->count() <= 0) {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("InitOptions::timeout is {} ms, and must be positive. Leave it out for the default, or "
                                "pass ddp::kNoTimeout to wait without end",
                                options.timeout->count()));
    }
    if (options.init_timeout.count() <= 0) {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("InitOptions::init_timeout is {} ms, it must be positive: it is how long a rank "
                                "waits for the others to join",
                                options.init_timeout.count()));
    }
}

}  // namespace

Context::Context(Environment environment, std::shared_ptr<Store> store, const InitOptions& options)
    : environment_(std::move(environment)), store_(std::move(store)) {
    check(options);
    detail::check(environment_);
    survive_notices();
    GroupSpec spec = world_spec(environment_, store_, options);
    const detail::InitWait waiting(spec);
    spec.note_unreachable = waiting.note_unreachable();
    waiting.run([&] {
        spec.init = detail::meet_in_round(spec);
        const Backend backend = agree_on_backend(spec, options.backend, environment_.local_rank);
        const milliseconds fallback = backend == Backend::Nccl ? kNcclTimeout : kNativeTimeout;
        spec.default_timeout = detail::bounded(options.timeout.value_or(fallback));
        if (backend == Backend::Nccl) spec.make_control_backend = detail::make_native_backend;
        auto made = backend == Backend::Nccl ? detail::make_nccl_backend(spec) : detail::make_native_backend(spec);
        world_ = detail::make_group(std::move(spec), std::move(made));
    });
}

bool Context::preempted() const {
    const detail::FlightRecorder* const recorder = detail::process_recorder();
    return recorder != nullptr && recorder->preempted();
}

Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

/// Returns the lowest rank on this machine. Collective the first time.
/// call   the call that absent ranks did not make, for errors
int Context::first_rank_here(std::string_view call) {
    if (machines_.empty()) {
        detail::GroupImpl& world = *world_->impl_;
        machines_ = world.exchange_with_all("machine", detail::machine_of(world.spec()), call);
    }
    return static_cast<int>(std::ranges::find(machines_, machines_[static_cast<std::size_t>(rank())]) -
                            machines_.begin());
}

bool Context::agree(bool yes) {
    std::uint8_t all = yes ? 1 : 0;
    world_->all_reduce(all, ReduceOp::Min, {.label = "agree()"}).wait();
    return all == 1;
}

std::unique_ptr<ProcessGroup> Context::split_by_machine() {
    return world_->split(first_rank_here("split_by_machine()"), rank(), "local");
}

std::unique_ptr<ProcessGroup> Context::split_leaders() {
    return world_->split(first_rank_here("split_leaders()") == rank() ? 0 : -1, rank(), "leaders");
}

void fail(Context& context, std::string_view text, int exit_code) {
    try {
        std::fflush(stdout);
        if (text.empty()) {
            std::this_thread::sleep_for(kUntilTheReportHasEnded);
        } else {
            std::fputs(fmt::format("{}\n", text).c_str(), stderr);
            context.world().abort(text);
        }
    } catch (...) {  // no memory for the report; the process ends all the same
    }
    std::_Exit((exit_code & 0xff) != 0 ? exit_code : EXIT_FAILURE);  // the kernel keeps 8 bits
}

Context init_from_env(const InitOptions& options) {
    // Before the library opens sockets and segments. A trainer's messages must not fail: fmt::print() would throw.
    ddprun::open_standard_fds(O_RDWR);
    (void)detail::process_recorder();  // before this process starts others that could take it
    detail::refuse_cleared(detail::process_variables(), detail::is_below_ddprun());
    const std::string& secret = detail::process_secret();
    check(options);
    Environment environment = detail::read_environment(detail::process_variables());
    environment.secret = secret;
    auto store = environment.master_port == 0 ? detail::make_local_store()
                                              : detail::connect_store(environment, options.init_timeout);
    return {std::move(environment), std::move(store), options};
}

}  // namespace ddp
