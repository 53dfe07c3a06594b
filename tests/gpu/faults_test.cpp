// Faults between two ranks, which are processes of one job (scripts/gpu-check, checks 8 to 12): a rank is late, makes
// no call, is stopped, or is killed while the others wait for it on the device.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace std::chrono_literals;

namespace {

using ddprun::Clock;

/// Returns the time of CLOCK_MONOTONIC, which all processes of a machine have in common, for files and the store.
std::string now_text() { return std::to_string(Clock::now().time_since_epoch().count()); }

double seconds_since(const std::string& text) {
    return test::seconds_since(ddprun::TimePoint(Clock::duration(std::stoll(text))));
}

/// Waits for a step that another rank announces.
std::string announced(Context& context, std::string_view what) { return context.store().get(what, 60s); }

/// The last act of a rank.
[[noreturn]] void die(Context& context, std::string_view when) {
    context.store().set(when, now_text());
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
}

/// Returns what is wrong with an error about the loss of rank 1, or "". NCCL knows only that some rank is gone; its
/// name is known where its process can be watched, on one node.
std::string complaint_about(const Error& error, const Context& context, const ProcessGroup& group) {
    if (error.code() != ErrorCode::PeerLost) return fmt::format("{}, not PeerLost; ", error.what());
    if (context.local_world_size() == 1) return "";
    const std::string name = group.name_of(1);
    const bool named =
        error.culprits() == std::vector{1} && std::string_view(error.what()).find(name) != std::string::npos;
    return named ? "" : fmt::format("'{}' does not name {}; ", error.what(), name);
}

/// Returns what is wrong with the error of an operation that waits on the device for one of another group, or "": it
/// learns of that group's failure, unless NCCL reports the lost peer to both.
std::string complaint_about_second(const Error& error) {
    const std::string_view text = error.what();
    const bool learned = text.find("another group of this device has failed") != std::string_view::npos;
    const bool by_nccl = text.find("NCCL failed") != std::string_view::npos;
    return learned || by_nccl ? "" : fmt::format("'{}' is not of the other group's failure; ", text);
}

/// Returns the GPU's utilisation in percent, as nvidia-smi has it; nothing: it does not report it.
std::optional<double> utilisation() {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
        ::popen("nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null", "r"), ::pclose);
    std::array<char, 64> line{};
    double percent = 0;
    if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return std::nullopt;
    return std::sscanf(line.data(), "%lf", &percent) == 1 ? std::optional(percent) : std::nullopt;
}

}  // namespace

TEST_CASE("gpu: a first message waits for a peer that comes late", "[gpu][check][late-peer]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              const std::vector<std::int32_t> sent(1001, 7), nothing(1001, -1);
              if (context.rank() == 0) {
                  const Buffer buffer = gpu.to_device(sent);
                  const auto begin = Clock::now();
                  context.world().send(buffer, 1, 0, {.stream = gpu.stream()}).wait_host();
                  figure_at_least("sent_after", test::seconds_since(begin), "s", 1);
                  return Clock::now() - begin > 1s ? "" : "sent before there was a peer; ";
              }
              if (context.rank() > 1) return "";
              std::this_thread::sleep_for(2s);  // the subject of this case: rank 0 has to wait
              const Buffer buffer = gpu.to_device(nothing);
              context.world().recv(buffer, 0, 0, {.stream = gpu.stream()}).wait();
              return gpu.to_host<std::int32_t>(buffer) == sent ? "" : "wrong values; ";
          }) == "");
}

TEST_CASE("gpu: a call that a peer never makes fails at its deadline, and leaves the device free",
          "[gpu][check][absent-call]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              if (!sums_ones(gpu, context.world())) return "a wrong sum; ";  // all are connected
              if (context.rank() > 0) {
                  (void)announced(context, "rank 0 has given up");
                  return "";
              }
              constexpr auto kTimeout = 3s;
              std::string met = "no error; ";
              const auto begin = Clock::now();
              try {
                  (void)sums_ones(gpu, context.world(), kTimeout);
              } catch (const Error& error) {
                  met = error.code() == ErrorCode::Timeout ? "" : error.what();
                  fact(fmt::format("'{}'", error.what()));
              }
              figure_at_most("error_after_the_deadline", test::seconds_since(begin + kTimeout), "s", 2);
              const std::vector<float> values(1000, 1.0f);
              const Buffer later = gpu.to_device(values);
              if (gpu.to_host<float>(later) != values) met += "the device does not copy any more; ";
              std::this_thread::sleep_for(1500ms);  // nvidia-smi averages over up to a second
              if (const auto percent = utilisation())
                  figure_at_most("utilisation_afterwards", *percent, "%", 0);
              else
                  not_tried("nvidia-smi reports no utilisation");
              context.store().set("rank 0 has given up", "");
              return met;
          }) == "");
}

TEST_CASE("gpu: a stopped peer is an error at the deadline, and takes part in the next group",
          "[gpu][check][stopped-peer]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              constexpr auto kTimeout = 3s;
              auto loop = context.world().split(0, context.rank(), "loop");
              auto begin = Clock::now();
              bool failed = false;
              for (int step = 0; !failed && test::seconds_since(begin) < 30; ++step) {
                  begin = Clock::now();
                  if (context.rank() == 1 && step == 20) {
                      context.store().set("pid of rank 1", std::to_string(::getpid()));
                      ::raise(SIGSTOP);
                  }
                  try {
                      if (!sums_ones(gpu, *loop, kTimeout)) return "a wrong sum; ";
                  } catch (const Error& error) {
                      failed = true;
                      if (context.rank() == 0) fact(fmt::format("'{}'", error.what()));
                  }
              }
              if (!failed) return "no error; ";
              if (context.rank() == 0) {
                  figure_at_most("error_after_the_deadline", test::seconds_since(begin + kTimeout), "s", 2);
                  ::kill(std::stoi(announced(context, "pid of rank 1")), SIGCONT);
              }
              const auto again = loop->shrink({});
              const auto end = Clock::now();
              loop.reset();
              if (context.rank() == 0) figure_at_most("failed_group_ended_in", test::seconds_since(end), "s", 1);
              return sums_ones(gpu, *again) ? "" : "a wrong sum after SIGCONT; ";
          }) == "");
}

TEST_CASE("gpu: a killed peer is named at once", "[gpu][check][killed-peer]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              const auto begin = Clock::now();
              for (int step = 0; test::seconds_since(begin) < 20; ++step) {
                  if (context.rank() == 1 && step == 20) die(context, "death of rank 1");
                  try {
                      if (!sums_ones(gpu, context.world())) return "a wrong sum; ";
                  } catch (const Error& error) {
                      const double after = seconds_since(announced(context, "death of rank 1"));
                      const char* const name =
                          context.local_world_size() == 1 ? "error_by_the_socket_after" : "error_by_the_process_after";
                      figure_at_most(name, after, "s", 2.5);
                      fact(fmt::format("'{}'", error.what()));
                      return complaint_about(error, context, context.world());
                  }
              }
              return "no error; ";
          }) == "");
}

TEST_CASE("gpu: workers train again soon after one was killed", "[gpu][check][restart]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    const char* const folder = std::getenv("GPU_CHECK_FOLDER");
    REQUIRE(folder != nullptr);
    const std::string file = std::string(folder) + "/killed";
    CHECK(complaints_of_ranks([&](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              for (int step = 0; step < 20; ++step)
                  if (!sums_ones(gpu, context.world())) return "a wrong sum; ";
              if (context.restart_count() == 0) {
                  if (context.rank() == 1) {
                      std::ofstream(file) << now_text() << std::flush;
                      ::kill(::getpid(), SIGKILL);
                  }
                  for (;;) (void)sums_ones(gpu, context.world());  // ddprun ends this process
              }
              std::string killed;
              std::ifstream(file) >> killed;
              if (context.rank() == 0) figure_at_most("training_again_after", seconds_since(killed), "s", 5);
              return "";
          }) == "");
}

TEST_CASE("gpu: two groups in flight, one behind the other on the device, fail together when a peer is killed",
          "[gpu][check][two-groups]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              auto reducer = context.world().split(0, context.rank(), "reducer");
              if (!sums_ones(gpu, context.world()) || !sums_ones(gpu, *reducer)) return "a wrong sum; ";
              if (context.rank() == 1) {
                  (void)announced(context, "both are in flight");
                  die(context, "death of rank 1");
              }
              const std::vector<float> ones(1000, 1.0f);
              const Buffer first = gpu.to_device(ones), second = gpu.to_device(ones);
              const OpOptions options{.timeout = 60s, .stream = gpu.stream()};
              std::vector<Work> works;
              works.push_back(context.world().all_reduce(first, ReduceOp::Sum, options));
              works.back().wait();  // the stream waits for it, and so does the reducer's operation
              works.push_back(reducer->all_reduce(second, ReduceOp::Sum, options));
              works.back().wait();
              works.push_back(context.world().all_reduce(second, ReduceOp::Sum, options));
              context.store().set("both are in flight", "");
              std::string met;
              for (Work& work : works) {
                  try {
                      work.wait_host();
                      met += "no error; ";
                  } catch (const Error& error) {
                      if (error.code() != ErrorCode::PeerLost) met += fmt::format("{}; ", error.what());
                      if (&work == &works[1]) met += complaint_about_second(error);
                  }
              }
              figure_at_most("both_failed_after_the_death", seconds_since(announced(context, "death of rank 1")), "s",
                             2.5);
              const auto end = Clock::now();
              reducer.reset();
              figure_at_most("failed_group_ended_in", test::seconds_since(end), "s", 2);
              return met;
          }) == "");
}
