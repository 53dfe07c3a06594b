// Checkpointer::save_async: the file of save(), errors at the next call, and the fence.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/child.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;
using Names = std::set<std::string>;

namespace {

/// A state of 8 MB: writing it takes longer than the statements after save_async.
struct LargeModel {
    explicit LargeModel(float value) : weights(2'000'000, value) {}
    std::vector<NamedBuffer> buffers() { return {{"weights", Buffer(weights)}, {"nothing", {}}}; }
    bool operator==(const LargeModel&) const = default;
    std::vector<float> weights;
};

const std::string kAsyncJob(32, 'a');

LocalWorld async_generation(std::int64_t number, std::vector<int> shape = {1}) {
    return {.ranks_per_node = std::move(shape), .session = kAsyncJob, .generation = number};
}

}  // namespace

TEST_CASE("save_async writes the file of save, of the values at its call", "[checkpoint]") {
    const TemporaryDirectory first;
    const TemporaryDirectory second;
    run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        LargeModel state(3);
        Checkpointer(first.path(), context).save(7, state.buffers());
        Checkpointer checkpointer(second.path(), context);
        checkpointer.save_async(7, state.buffers());
        state = LargeModel(4);  // in the same memory
        checkpointer.wait();
    });
    CHECK(second.names() == Names{"step-7.safetensors"});
    CHECK(read_file(second.path() / "step-7.safetensors") == read_file(first.path() / "step-7.safetensors"));
}

TEST_CASE("every call after save_async sees its checkpoint, and so does the end", "[checkpoint]") {
    const TemporaryDirectory directory;
    const int call = GENERATE(0, 1, 2, 3, 4);
    CAPTURE(call);
    const auto right = run_ranks(async_generation(1, {2}), [&](Context& context) {
        LargeModel state(3);
        LargeModel other(0);
        bool loaded = true;
        {
            Checkpointer checkpointer(directory.path(), context, {.keep = 1});
            checkpointer.save_async(1, state.buffers());
            if (call == 0) checkpointer.save(2, state.buffers());
            if (call == 1) checkpointer.save_async(2, state.buffers());
            if (call == 2) loaded = checkpointer.latest() == 1;
            if (call == 3) {
                checkpointer.load(1, other.buffers());
                loaded = other == state;
            }
        }
        context.world().barrier().wait();
        return loaded;
    });
    CHECK(right == std::vector{true, true});
    // The asynchronous save that the destructor ends has removed nothing.
    Names expected{"gen-1." + kAsyncJob};
    if (call != 0) expected.insert("step-1.safetensors");
    if (call < 2) expected.insert("step-2.safetensors");
    CHECK(directory.names() == expected);
}

TEST_CASE("an error of save_async arrives at the next call, on every rank, once", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "checkpoints";
    const int call = GENERATE(0, 1, 2, 3, 4);
    const auto errors = errors_of({.ranks_per_node = {2}}, [&](Context& context) {
        LargeModel state(3);
        Checkpointer checkpointer(path, context);
        if (context.rank() == 0) std::filesystem::create_directory(path / "step-1.safetensors");  // in its place
        context.world().barrier().wait();
        checkpointer.save_async(1, state.buffers());
        try {
            if (call == 0) checkpointer.save(2, state.buffers());
            if (call == 1) checkpointer.save_async(2, state.buffers());
            if (call == 2) (void)checkpointer.latest();
            if (call == 3) checkpointer.load(1, state.buffers());
            if (call == 4) checkpointer.wait();
        } catch (const Error&) {
            if (context.rank() == 0) std::filesystem::remove_all(path / "step-1.safetensors");
            checkpointer.wait();
            checkpointer.save(3, state.buffers());
            throw;
        }
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Io);
        CHECK_THAT(error->what(), Contains((path / "step-1.safetensors").string()) && Contains("Is a directory"));
    }
    CHECK(std::filesystem::exists(path / "step-3.safetensors"));
    CHECK_FALSE(std::filesystem::exists(path / "step-2.safetensors"));
}

TEST_CASE("an error of save_async that no call gets is printed at the end, by one rank", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "checkpoints";
    const auto printed = directory.path() / "printed";
    (void)in_child([&]() -> std::string {
        if (std::freopen(printed.c_str(), "w", stderr) == nullptr) return "";
        run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
            LargeModel state(3);
            Checkpointer checkpointer(path, context);
            std::filesystem::create_directory(path / "step-1.safetensors");
            checkpointer.save_async(1, state.buffers());
        });
        std::fflush(stderr);
        return "";
    });
    const std::string text = read_file(printed);
    CHECK(std::ranges::count(text, '\n') == 1);
    CHECK_THAT(
        text, Catch::StartsWith("[ddp] save_async: cannot write checkpoint " + (path / "step-1.safetensors").string()));
}

TEST_CASE("save_async does not commit once a newer generation has taken the directory over", "[checkpoint]") {
    const TemporaryDirectory directory;
    const bool before_the_call = GENERATE(true, false);
    const auto errors = errors_of(async_generation(1, {2}), [&](Context& context) {
        LargeModel state(1);
        Checkpointer checkpointer(directory.path(), context);
        checkpointer.save_async(1, state.buffers());
        checkpointer.wait();
        const auto take_over = [&] {
            context.world().barrier().wait();
            if (context.rank() == 0)
                run_ranks(async_generation(2), [&](Context& newer) { Checkpointer(directory.path(), newer); });
            context.world().barrier().wait();
        };
        if (before_the_call) take_over();
        checkpointer.save_async(2, state.buffers());
        if (!before_the_call) take_over();
        checkpointer.wait();
        // The file was written before the newer generation came, or not at all.
        if (!before_the_call) throw Error(ErrorCode::Superseded, "it was written before");
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Superseded);
    }
    const Names names = directory.names();
    CHECK(names.contains("step-1.safetensors"));
    if (before_the_call) CHECK_FALSE(names.contains("step-2.safetensors"));
    for (const std::string& name : names) CHECK_THAT(name, !Contains(".tmp"));
}

TEST_CASE("a child of fork may destroy a Checkpointer whose save is in progress", "[checkpoint]") {
    const TemporaryDirectory directory;
    run_ranks({}, [&](Context& context) {
        LargeModel state(3);
        auto* const checkpointer = new Checkpointer(directory.path(), context);
        checkpointer->save_async(1, state.buffers());
        const std::string result = in_child([&]() -> std::string {
            delete checkpointer;
            return "ended";
        });
        delete checkpointer;
        if (result != "ended") throw Error(ErrorCode::System, "the child has not ended");
    });
    CHECK(directory.names() == Names{"step-1.safetensors"});
}
