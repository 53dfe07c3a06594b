// Rank 0s of several generations or jobs in one directory: no file is torn, and only the newest one commits.

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/support/child.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/world_errors.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"
#include "worker_lib/src/checkpoint/file.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;
using detail::SaveFence;
using Names = std::set<std::string>;

namespace {

/// A state of 4 MB, so that two saves overlap.
struct Large {
    explicit Large(float value) : weights(1'000'000, value) {}
    std::vector<NamedBuffer> buffers() { return {{"weights", buffer(std::span<float>(weights))}}; }
    std::vector<float> weights;
};

/// Returns the world of one generation of job "job".
LocalWorld generation(std::int64_t number, std::vector<int> shape = {1}) {
    return {.ranks_per_node = std::move(shape), .session = "job", .generation = number};
}

void save(const LocalWorld& world, const std::filesystem::path& directory, std::uint64_t step) {
    run_ranks(world, [&](Context& context) {
        float value = static_cast<float>(world.generation);
        Checkpointer(directory, context).save(step, std::vector<NamedBuffer>{{"value", buffer(value)}});
    });
}

void open(const LocalWorld& world, const std::filesystem::path& directory) {
    run_ranks(world, [&](Context& context) { Checkpointer(directory, context); });
}

float value_in(const std::filesystem::path& directory, std::uint64_t step) {
    return run_ranks(
               {},
               [&](Context& context) {
                   float value = -1;
                   Checkpointer(directory, context).load(step, std::vector<NamedBuffer>{{"value", buffer(value)}});
                   return value;
               })
        .front();
}

/// Rank 0's side of a save, in the two parts between which another generation can act.
class HalfSave {
public:
    HalfSave(const std::filesystem::path& directory, const detail::Owner& owner, float value)
        : fence_(directory, owner), value_(value), path_(detail::checkpoint_path(directory, 5)) {
        fence_.open();
    }
    void write() {
        fence_.take_over();
        temporary_ = detail::write_temporary(path_, fence_, manifest_, state_);
    }
    void commit() { detail::commit(temporary_, path_, fence_, manifest_); }
    [[nodiscard]] std::optional<Error> error_of_commit() {
        try {
            commit();
        } catch (const Error& error) {
            return error;
        }
        return {};
    }
    [[nodiscard]] std::string temporary() const { return temporary_.filename().string(); }

private:
    SaveFence fence_;
    float value_;
    std::filesystem::path path_;
    std::vector<NamedBuffer> state_{{"value", buffer(value_)}};
    detail::Manifest manifest_ = detail::make_manifest(5, 1, state_);
    std::filesystem::path temporary_;
};

void check_superseded(const std::optional<Error>& error, const std::string& why) {
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Superseded);
    CHECK_THAT(error->what(), Contains("cannot save checkpoint") && Contains("step-5.ckpt: " + why));
}

}  // namespace

TEST_CASE("two rank 0s that save the same step at once do not tear it", "[checkpoint]") {
    const TemporaryDirectory directory;
    Gate both_made(2);
    std::array<std::string, 2> errors;
    const auto save_again_and_again = [&](std::size_t which) {
        errors[which] = try_ranks({},
                                  [&](Context& context) {
                                      Checkpointer checkpointer(directory.path(), context);
                                      Large state(static_cast<float>(which));
                                      both_made.pass();
                                      for (int i = 0; i < 20; ++i) checkpointer.save(5, state.buffers());
                                  })
                            .front()
                            .text();
    };
    std::thread other(save_again_and_again, 1);
    save_again_and_again(0);
    other.join();
    CHECK(errors == std::array<std::string, 2>{});
    CHECK(detail::find_damage(directory.path() / "step-5.ckpt", 5).empty());
    CHECK(directory.names() == Names{"step-5.ckpt"});
}

TEST_CASE("of two generations that write the same step only the newer one commits", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave older(directory.path(), {"job", 1}, 1);
    older.write();
    CHECK_THAT(older.temporary(), Catch::StartsWith("step-5.ckpt.tmp.1.job."));
    HalfSave newer(directory.path(), {"job", 2}, 2);
    newer.write();
    const bool newer_is_first = GENERATE(true, false);
    if (newer_is_first) newer.commit();
    check_superseded(older.error_of_commit(),
                     "generation 2 of this job has taken the directory over from generation 1");
    if (!newer_is_first) newer.commit();
    CHECK(value_in(directory.path(), 5) == 2);
    CHECK(directory.names() == Names{"step-5.ckpt", "gen-2.job"});
}

TEST_CASE("a generation that writes its file after a newer one has come does not commit", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave older(directory.path(), {"job", 1}, 1);
    older.write();
    older.commit();
    open(generation(2), directory.path());
    older.write();
    check_superseded(older.error_of_commit(), "generation 2 of this job");
    CHECK(directory.names() == Names{"step-5.ckpt", "gen-2.job"});
}

TEST_CASE("every rank of a superseded generation gets the error, and the checkpoints stay", "[checkpoint]") {
    const TemporaryDirectory directory;
    const bool saved_before = GENERATE(true, false);
    const auto errors = errors_of(generation(9, {2, 1}), [&](Context& context) {
        float value = 9;
        const std::vector<NamedBuffer> state{{"value", buffer(value)}};
        Checkpointer checkpointer(directory.path(), context, 1);
        if (saved_before) checkpointer.save(5, state);
        context.world().barrier().wait();
        if (context.rank() == 0) save(generation(10), directory.path(), 6);  // a larger number, a smaller name
        context.world().barrier().wait();
        checkpointer.save(7, state);
    });
    for (const auto& error : errors) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Superseded);
        CHECK_THAT(error->what(),
                   Contains("generation 10 of this job has taken the directory over from generation 9") &&
                       Contains("End this process") && Contains(directory.path().string()));
    }
    CHECK(directory.names() ==
          (saved_before ? Names{"step-5.ckpt", "step-6.ckpt", "gen-10.job"} : Names{"step-6.ckpt", "gen-10.job"}));
}

TEST_CASE("a generation that comes after a newer one is refused at the start", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave newer(directory.path(), {"job", 3}, 3);
    newer.write();
    for (const auto& error :
         errors_of(generation(2, {2}), [&](Context& context) { Checkpointer(directory.path(), context); })) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Superseded);
        CHECK_THAT(error->what(), Contains("cannot use checkpoint directory " + directory.path().string()) &&
                                      Contains("generation 3 of this job"));
    }
    newer.commit();
    CHECK(directory.names() == Names{"step-5.ckpt", "gen-3.job"});
}

TEST_CASE("a new job takes over the directory of an old one, whose generations went further", "[checkpoint]") {
    const TemporaryDirectory directory;
    save(generation(17), directory.path(), 4);
    write_file(directory.path() / "step-5.ckpt.tmp.17.job.0a1b", "of a killed process");
    const LocalWorld second{.session = "second", .generation = 1};
    save(second, directory.path(), 6);
    CHECK(directory.names() == Names{"step-4.ckpt", "step-6.ckpt", "gen-1.second"});
    save({.session = "second", .generation = 2}, directory.path(), 7);
    CHECK(directory.names() == Names{"step-4.ckpt", "step-6.ckpt", "step-7.ckpt", "gen-2.second"});
}

TEST_CASE("a job that only loads takes the directory from no other, one that saves does", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave training(directory.path(), {"job", 2}, 2);
    training.write();
    const LocalWorld evaluation{.session = "evaluation", .generation = 7};
    open(evaluation, directory.path());
    training.commit();
    CHECK(value_in(directory.path(), 5) == 2);
    training.write();
    save(evaluation, directory.path(), 6);
    check_superseded(training.error_of_commit(),
                     "the marker gen-2.job was removed, where now is gen-7.evaluation. "
                     "Another job uses the directory");
    CHECK(directory.names() == Names{"step-5.ckpt", "step-6.ckpt", "gen-7.evaluation"});
}

TEST_CASE("only what nobody commits any more is removed", "[checkpoint]") {
    const TemporaryDirectory directory;
    const Names older{"step-1.ckpt.tmp.1.job.aa", "step-2.ckpt.tmp.2.job.bb"};
    const Names of_others{"step-3.ckpt.tmp", "step-3.ckpt.tmp.cc", "step-3.ckpt.tmp.9.other.dd"};
    const Names kept{"step-4.ckpt.tmp.3.job.ee",
                     "step-4.ckpt.tmp.4.job.ff",
                     "step-4.ckpt.tmp.x.job.ff",
                     "step-4.ckpt.tmp.1.job.older.f",
                     "step-x.ckpt.tmp.1.job.aa",
                     "step-4.ckpt.tmp-",
                     "mine.tmp.1.job.aa",
                     "gen-x.job",
                     "gen-1"};
    for (const Names& names : {older, of_others, kept})
        for (const std::string& name : names) write_file(directory.path() / name, "x");
    const auto with = [&](Names names) {
        names.insert(kept.begin(), kept.end());
        return names;
    };
    SECTION("by a generation that is opened") {
        open(generation(3), directory.path());
        Names expected = with(of_others);
        expected.insert("gen-3.job");
        CHECK(directory.names() == expected);
    }
    SECTION("by a generation that saves") {
        save(generation(3), directory.path(), 5);
        CHECK(directory.names() == with({"step-5.ckpt", "gen-3.job"}));
    }
    SECTION("without a launcher") {
        save({}, directory.path(), 5);
        Names expected = with(older);
        expected.insert({"step-5.ckpt", "step-3.ckpt.tmp.9.other.dd"});
        CHECK(directory.names() == expected);
    }
}

TEST_CASE("a temporary file that is removed during the save is an error of one line", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string session = GENERATE("", "job");
    HalfSave one(directory.path(), {session, 1}, 1);
    one.write();
    std::filesystem::remove(directory.path() / one.temporary());
    const auto error = one.error_of_commit();
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Io);
    CHECK_THAT(error->what(), Contains("step-5.ckpt: No such file or directory. Was the directory, or the temporary "
                                       "file in it, removed while the job ran?"));
}

TEST_CASE("a marker that was removed by hand is named", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave one(directory.path(), {"job", 1}, 1);
    one.write();
    std::filesystem::remove(directory.path() / "gen-1.job");
    check_superseded(one.error_of_commit(),
                     "the marker gen-1.job was removed. Another job uses the directory, or the "
                     "file was removed by hand");
    CHECK(directory.names().empty());
}

TEST_CASE("a fenced directory that vanishes is an error about the directory", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "gone";
    std::filesystem::create_directory(path);
    HalfSave one(path, {"job", 1}, 1);
    one.write();
    std::filesystem::remove_all(path);
    const auto error = one.error_of_commit();
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Io);
    CHECK_THAT(error->what(), Contains("Was the directory, or the temporary file in it, removed"));
}

TEST_CASE("Checkpointers of one generation share a directory", "[checkpoint]") {
    const TemporaryDirectory directory;
    run_ranks(generation(3, {2}), [&](Context& context) {
        float value = 3;
        const std::vector<NamedBuffer> state{{"value", buffer(value)}};
        Checkpointer first(directory.path(), context);
        Checkpointer second(directory.path(), context);
        const auto part = context.world().split(0, 0, "part");
        Checkpointer third(directory.path(), *part);
        first.save(1, state);
        second.save(2, state);
        third.save(3, state);
        first.save(4, state);
    });
    CHECK(directory.names() == Names{"step-2.ckpt", "step-3.ckpt", "step-4.ckpt", "gen-3.job"});
}

TEST_CASE("a directory in which no file can be created is refused at the start, on every rank", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string result = in_child([&]() -> std::string {
        const auto full = directory.path() / "full";
        const auto read_only = directory.path() / "read-only";
        for (const auto& path : {full, read_only}) std::filesystem::create_directory(path);
        if (!mount_tmpfs(full, "nr_inodes=1") || !mount_tmpfs(read_only, "", MS_RDONLY)) return "cannot mount";
        std::string text;
        for (const auto& path : {full, read_only}) {
            const auto outcomes = try_ranks(generation(1, {2}), [&](Context& context) { Checkpointer(path, context); });
            for (const auto& outcome : outcomes) text += outcome.text() + "\n";
            ::umount(path.c_str());
        }
        return text;
    });
    if (result == "cannot mount") {
        WARN("SKIPPED: mounting a small file system needs root");
        return;
    }
    const std::string full = "cannot create a file in checkpoint directory " + (directory.path() / "full").string() +
                             ": No space left on device. Free some space there, or pass another directory\n";
    const std::string read_only = "cannot write to checkpoint directory " + (directory.path() / "read-only").string() +
                                  ": Read-only file system. Pass a directory that this user may write to\n";
    CHECK(result == full + full + read_only + read_only);
}
