// Checkpointer with ranks that disagree, and with groups that have failed: neither files nor buffers are touched.

#include <array>
#include <string>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/group/agreement.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;
using Names = std::set<std::string>;

namespace {

/// Two parameters of one size, as in a network of equal layers.
struct Layers {
    explicit Layers(float start) : first{start, start}, second{-start, -start} {}
    std::vector<NamedBuffer> buffers() { return {{"first", Buffer(first)}, {"second", Buffer(second)}}; }
    bool operator==(const Layers&) const = default;
    std::array<float, 2> first;
    std::array<float, 2> second;
};

void save_first(const std::filesystem::path& directory) {
    run_ranks({}, [&](Context& context) {
        Layers state(1);
        Checkpointer(directory, context).save(1, state.buffers());
    });
}

void check_mismatch(const std::optional<Error>& error, const std::string& words) {
    REQUIRE(error);
    INFO(error->what());
    CHECK(error->code() == ErrorCode::Mismatch);
    CHECK_THAT(error->what(), Contains("the ranks disagree on the checkpoint: " + named(0)) && Contains(words) &&
                                  Contains("but " + named(2)) && Contains("(ranks that differ from rank 0: rank 2)"));
}

}  // namespace

TEST_CASE("ranks that name their parameters in another order load nothing", "[checkpoint]") {
    const auto shape = GENERATE(values<std::vector<int>>({{3}, {2, 1}}));
    const TemporaryDirectory directory;
    save_first(directory.path());
    std::array<bool, 3> untouched{};
    const auto errors = errors_of({.ranks_per_node = shape}, [&](Context& context) {
        Layers state(7);
        auto buffers = state.buffers();
        if (context.rank() == 2) std::swap(buffers[0], buffers[1]);
        try {
            Checkpointer(directory.path(), context).load(1, buffers);
        } catch (const Error&) {
            untouched[static_cast<std::size_t>(context.rank())] = state == Layers(7);
            throw;
        }
    });
    for (const auto& error : errors) check_mismatch(error, "tensor 0 'first' f32[2], but ");
    CHECK(untouched == std::array{true, true, true});
}

TEST_CASE("ranks that save different steps, names, types or sizes save nothing", "[checkpoint]") {
    const int what = GENERATE(0, 1, 2, 3, 4);
    const TemporaryDirectory directory;
    save_first(directory.path());
    const auto errors = errors_of({.ranks_per_node = {3}}, [&](Context& context) {
        Layers state(2);
        auto buffers = state.buffers();
        const bool odd = context.rank() == 2;
        if (odd && what == 1) buffers[1].name = "third";
        if (odd && what == 2) buffers[1].buffer.dtype = DType::I32;
        if (odd && what == 3) buffers[1].buffer.count = 1;
        if (odd && what == 4) buffers.pop_back();
        Checkpointer(directory.path(), context, {.keep = 1}).save(odd && what == 0 ? 3 : 2, buffers);
    });
    const std::array<std::string, 5> words{"has step 3", "has tensor 1 'third' f32[2]", "has tensor 1 'second' i32[2]",
                                           "has tensor 1 'second' f32[1]", "has nothing more"};
    for (const auto& error : errors) check_mismatch(error, words.at(static_cast<std::size_t>(what)));
    CHECK(directory.names() == Names{"step-1.safetensors"});
}

TEST_CASE("a buffer without memory is refused, on every rank", "[checkpoint]") {
    const bool everywhere = GENERATE(true, false);
    const bool saves = GENERATE(true, false);
    const TemporaryDirectory directory;
    save_first(directory.path());
    const auto errors = errors_of({.ranks_per_node = {2}}, [&](Context& context) {
        Layers state(2);
        auto buffers = state.buffers();
        if (everywhere || context.rank() == 0) buffers[1].buffer.data = nullptr;
        Checkpointer checkpointer(directory.path(), context);
        saves ? checkpointer.save(2, buffers) : checkpointer.load(1, buffers);
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == (everywhere ? ErrorCode::InvalidArgument : ErrorCode::Mismatch));
        CHECK_THAT(error->what(), Contains("cannot checkpoint 'second': the buffer is null"));
    }
    CHECK(directory.names() == Names{"step-1.safetensors"});
}

TEST_CASE("a save of a group that has failed leaves the last checkpoint", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_first(directory.path());
    const std::string saved = read_file(directory.path() / "step-1.safetensors");
    const std::uint64_t step = GENERATE(1, 2);
    Gate failed(2);
    Gate done(2);
    const auto errors = errors_of({.ranks_per_node = {2}}, behind(done, [&](Context& context) {
                                      Checkpointer checkpointer(directory.path(), context, {.keep = 1});
                                      if (context.rank() == 1) context.world().abort("no memory left");
                                      failed.pass();
                                      Layers state(2);
                                      checkpointer.save(step, state.buffers());
                                  }));
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Aborted);
    }
    CHECK(directory.names() == Names{"step-1.safetensors"});
    CHECK(read_file(directory.path() / "step-1.safetensors") == saved);
}

TEST_CASE("older checkpoints stay until all ranks know of the new one", "[checkpoint]") {
    const TemporaryDirectory directory;
    save_first(directory.path());
    Gate done(2);
    const auto errors = errors_of(
        {.ranks_per_node = {2}}, behind(done, [&](Context& context) {
            Checkpointer checkpointer(directory.path(), context, {.keep = 1});
            Layers state(2);
            if (context.rank() == 0) return checkpointer.save(2, state.buffers());
            const std::vector<std::string> same{"step 2", "tensor 0 'first' f32[2]", "tensor 1 'second' f32[2]"};
            detail::require_agreement(context.world(), "the checkpoint", same);
            context.world().abort("before the end of the save");
        }));
    REQUIRE(errors[0]);
    CHECK_THAT(errors[0]->what(), Contains("before the end of the save"));
    CHECK(directory.names().contains("step-1.safetensors"));
}

TEST_CASE("the survivors of a shrunk group continue with its checkpoints", "[checkpoint]") {
    const TemporaryDirectory directory;
    Gate left(3);
    const auto right = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        Layers first(1);
        Checkpointer(directory.path(), context).save(1, first.buffers());
        const auto group = context.rank() == 0 ? nullptr : context.world().shrink(std::vector<int>{0});
        left.pass();
        if (!group) return true;
        Checkpointer checkpointer(directory.path(), *group);
        const bool found = checkpointer.latest() == 1;
        Layers mine(static_cast<float>(context.rank()));
        checkpointer.save(2, mine.buffers());
        Layers loaded(7);
        checkpointer.load(2, loaded.buffers());
        return found && loaded == Layers(1);
    });
    CHECK(right == std::vector<bool>{true, true, true});
    CHECK(directory.names() == Names{"step-1.safetensors", "step-2.safetensors"});
}
