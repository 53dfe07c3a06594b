// Rank 0s of several generations or jobs in one directory: no file is torn, and only the newest one commits.

#include <array>
#include <cstring>
#include <regex>
#include <set>
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
#include "worker_lib/src/checkpoint/save.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;
using detail::SaveFence;
using Names = std::set<std::string>;

namespace {

const std::string kJob(32, 'a');
const std::string kSecond(32, 'b');
const std::string kEvaluation(32, 'e');
const std::string kRandom(32, '0');

/// Returns the file name that stands for "gen-1.job.*", as names_in() shortens it.
std::string full(std::string name) {
    for (const auto& [word, text] : {std::pair{"job", kJob}, {"second", kSecond}, {"*", kRandom}}) {
        if (const auto at = name.find(word); at != std::string::npos) name.replace(at, std::strlen(word), text);
    }
    return name;
}

/// Shortens sessions to their names, and the random end of a marker or a temporary file to "*".
std::string shortened(std::string text) {
    for (const auto& [name, session] : {std::pair{"job", kJob}, {"second", kSecond}, {"evaluation", kEvaluation}})
        text = std::regex_replace(text, std::regex(session), name);
    return std::regex_replace(text, std::regex("\\.[0-9a-f]{32}"), ".*");
}

Names names_in(const TemporaryDirectory& directory) {
    Names names;
    for (const std::string& name : directory.names()) names.insert(shortened(name));
    return names;
}

/// A state of 4 MB, so that two saves overlap.
struct Large {
    explicit Large(float value) : weights(1'000'000, value) {}
    std::vector<NamedBuffer> buffers() { return {{"weights", Buffer(weights)}}; }
    std::vector<float> weights;
};

/// Returns the world of one generation of job "job".
LocalWorld generation(std::int64_t number, std::vector<int> shape = {1}) {
    return {.ranks_per_node = std::move(shape), .session = kJob, .generation = number};
}

void save(const LocalWorld& world, const std::filesystem::path& directory, std::uint64_t step) {
    run_ranks(world, [&](Context& context) {
        float value = static_cast<float>(world.generation);
        Checkpointer(directory, context).save(step, std::vector<NamedBuffer>{{"value", Buffer(value)}});
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
                   Checkpointer(directory, context).load(step, std::vector<NamedBuffer>{{"value", Buffer(value)}});
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
        save_.emplace(path_, ddprun::checkpoint::SaveFacts{5, 1, 0}, detail::as_shards(state_), 0);
        temporary_ = save_->create(fence_);
        save_->plan(std::vector<detail::OwnedRange>{{0, 0, sizeof value_}}, {true});
        save_->write();
    }
    void commit() { save_->commit(fence_, save_->hashes()); }
    [[nodiscard]] std::optional<Error> error_of_commit() {
        try {
            commit();
        } catch (const Error& error) {
            return error;
        }
        return {};
    }
    [[nodiscard]] const std::string& temporary() const { return temporary_; }

private:
    SaveFence fence_;
    float value_;
    std::filesystem::path path_;
    std::vector<NamedBuffer> state_{{"value", Buffer(value_)}};
    std::optional<detail::Save> save_;
    std::string temporary_;
};

void check_superseded(const std::optional<Error>& error, const std::string& why) {
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Superseded);
    CHECK_THAT(shortened(error->what()), Contains("cannot save checkpoint") && Contains("step-5.safetensors: " + why));
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
    CHECK(detail::find_damage(directory.path() / "step-5.safetensors", 5).empty());
    CHECK(names_in(directory) == Names{"step-5.safetensors"});
}

TEST_CASE("of two generations that write the same step only the newer one commits", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave older(directory.path(), {kJob, 1}, 1);
    older.write();
    CHECK(shortened(older.temporary()) == "step-5.safetensors.tmp.1.job.*");
    HalfSave newer(directory.path(), {kJob, 2}, 2);
    newer.write();
    const bool newer_is_first = GENERATE(true, false);
    if (newer_is_first) newer.commit();
    check_superseded(older.error_of_commit(),
                     "generation 2 of this job has taken the directory over from generation 1");
    if (!newer_is_first) newer.commit();
    CHECK(value_in(directory.path(), 5) == 2);
    CHECK(names_in(directory) == Names{"step-5.safetensors", "gen-2.job.*"});
}

TEST_CASE("a generation that writes its file after a newer one has come does not commit", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave older(directory.path(), {kJob, 1}, 1);
    older.write();
    older.commit();
    HalfSave newer(directory.path(), {kJob, 2}, 2);
    older.write();
    check_superseded(older.error_of_commit(), "generation 2 of this job");
    CHECK(names_in(directory) == Names{"step-5.safetensors", "gen-2.job.*"});
}

TEST_CASE("a generation whose first save comes after a newer one has been opened is refused", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave older(directory.path(), {kJob, 1}, 1);
    {
        HalfSave newer(directory.path(), {kJob, 2}, 2);
        CHECK(names_in(directory) == Names{"gen-2.job.*"});
        CHECK_THROWS_WITH(older.write(), Contains("cannot save to checkpoint directory") &&
                                             Contains("generation 2 of this job has taken the directory over"));
    }
    CHECK(directory.names().empty());  // the newer one has only loaded
    CHECK_THROWS_WITH(older.write(), Contains("was removed"));
    CHECK(directory.names().empty());
}

TEST_CASE("every rank of a superseded generation gets the error, and the checkpoints stay", "[checkpoint]") {
    const TemporaryDirectory directory;
    const bool saved_before = GENERATE(true, false);
    const auto errors = errors_of(generation(9, {2, 1}), [&](Context& context) {
        float value = 9;
        const std::vector<NamedBuffer> state{{"value", Buffer(value)}};
        Checkpointer checkpointer(directory.path(), context, {.keep = 1});
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
    CHECK(names_in(directory) == (saved_before ? Names{"step-5.safetensors", "step-6.safetensors", "gen-10.job"}
                                               : Names{"step-6.safetensors", "gen-10.job"}));
}

TEST_CASE("a generation that comes after a newer one is refused at the start", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave newer(directory.path(), {kJob, 3}, 3);
    newer.write();
    for (const auto& error :
         errors_of(generation(2, {2}), [&](Context& context) { Checkpointer(directory.path(), context); })) {
        REQUIRE(error);
        CHECK(error->code() == ErrorCode::Superseded);
        CHECK_THAT(error->what(), Contains("cannot use checkpoint directory " + directory.path().string()) &&
                                      Contains("generation 3 of this job"));
    }
    newer.commit();
    CHECK(names_in(directory) == Names{"step-5.safetensors", "gen-3.job.*"});
}

TEST_CASE("a new job takes over the directory of an old one, whose generations went further", "[checkpoint]") {
    const TemporaryDirectory directory;
    save(generation(17), directory.path(), 4);
    write_file(directory.path() / full("step-5.safetensors.tmp.17.job.*"), "of a killed process");
    const LocalWorld second{.session = kSecond, .generation = 1};
    write_file(directory.path() / full("gen-16.job.*"), "");
    save(second, directory.path(), 6);
    CHECK(names_in(directory) == Names{"step-4.safetensors", "step-6.safetensors", "gen-1.second"});
    save({.session = kSecond, .generation = 2}, directory.path(), 7);
    CHECK(names_in(directory) ==
          Names{"step-4.safetensors", "step-6.safetensors", "step-7.safetensors", "gen-2.second"});
}

TEST_CASE("a job that only loads takes the directory from no other, one that saves does", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave training(directory.path(), {kJob, 2}, 2);
    training.write();
    const LocalWorld evaluation{.session = kEvaluation, .generation = 7};
    open(evaluation, directory.path());
    CHECK(names_in(directory) == Names{"step-5.safetensors.tmp.2.job.*", "gen-2.job.*"});
    training.commit();
    CHECK(value_in(directory.path(), 5) == 2);
    training.write();
    save(evaluation, directory.path(), 6);
    check_superseded(training.error_of_commit(),
                     "the marker gen-2.job.* was removed, where now is gen-7.evaluation. "
                     "Another job uses the directory");
    CHECK(names_in(directory) == Names{"step-5.safetensors", "step-6.safetensors", "gen-7.evaluation"});
}

TEST_CASE("only files that no save commits any more are removed", "[checkpoint]") {
    const TemporaryDirectory directory;
    const Names older{"step-1.safetensors.tmp.1.job.*", "step-2.safetensors.tmp.2.job.*"};
    const Names of_others{"step-3.safetensors.tmp", "step-3.safetensors.tmp.*", "step-3.safetensors.tmp.9.second.*"};
    const Names kept{"step-4.safetensors.tmp.3.job.*",
                     "step-4.safetensors.tmp.4.job.*",
                     "step-4.safetensors.tmp.x.job.*",
                     "step-4.safetensors.tmp.01.job.*",
                     "step-4.safetensors.tmp.-1.job.*",
                     "step-4.safetensors.tmp.1.job.older.*",
                     "step-4.safetensors.tmp.1.other.*",
                     "step-4.safetensors.tmp.1.job.f",
                     "step-4.safetensors.tmp.1.job",
                     "step-4.safetensors.tmp.mine",
                     "step-04.safetensors.tmp.1.job.*",
                     "step-x.safetensors.tmp.1.job.*",
                     "step-4.safetensors.tmp-",
                     "step-4.safetensors.tmp.",
                     "mine.tmp.1.job.*",
                     "gen-1000.png",
                     "gen-3.pt",
                     "gen-1.job.png",
                     "gen-2.other.*",
                     "gen-x.job",
                     "gen-01.job",
                     "gen--1.job",
                     "gen-1.job.*.*",
                     "gen-1",
                     "gen-"};
    const Names kept_as_they_have_contents{"gen-1.job", "gen-9.job.*", "gen-9.second"};
    const Names kept_directories{"gen-2.job", "gen-1.d", "gen-0.job.*", "step-5.safetensors.tmp.1.job.*"};
    const bool has_contents = GENERATE(true, false);
    for (const Names& names : {older, of_others, kept})
        for (const std::string& name : names) write_file(directory.path() / full(name), has_contents ? "x" : "");
    for (const std::string& name : kept_as_they_have_contents) write_file(directory.path() / full(name), "x");
    for (const std::string& name : kept_directories) std::filesystem::create_directory(directory.path() / full(name));
    const auto with = [&](Names names) {
        for (const Names& more : {kept, kept_as_they_have_contents, kept_directories})
            names.insert(more.begin(), more.end());
        return names;
    };
    SECTION("by a generation that is opened") {
        open(generation(3), directory.path());
        CHECK(names_in(directory) == with(of_others));
    }
    SECTION("by a generation that saves") {
        save(generation(3), directory.path(), 5);
        CHECK(names_in(directory) == with({"step-5.safetensors", "gen-3.job"}));
    }
    SECTION("without a launcher") {
        save({}, directory.path(), 5);
        Names expected = with(older);
        expected.insert({"step-5.safetensors", "step-3.safetensors.tmp.9.second.*"});
        CHECK(names_in(directory) == expected);
    }
}

TEST_CASE("a temporary file that is removed during the save is an error of one line", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string session = GENERATE(std::string(), kJob);
    HalfSave one(directory.path(), {session, 1}, 1);
    one.write();
    std::filesystem::remove(directory.path() / one.temporary());
    const auto error = one.error_of_commit();
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::Io);
    CHECK_THAT(error->what(),
               Contains("step-5.safetensors: No such file or directory. Was the directory, or the temporary "
                        "file in it, removed while the job ran?"));
}

TEST_CASE("a marker that was removed by hand is named", "[checkpoint]") {
    const TemporaryDirectory directory;
    HalfSave one(directory.path(), {kJob, 1}, 1);
    one.write();
    for (const std::string& name : directory.names())
        if (name.starts_with("gen-")) std::filesystem::remove(directory.path() / name);
    check_superseded(one.error_of_commit(),
                     "the marker gen-1.job.* was removed. Another job uses the directory, or the "
                     "file was removed by hand");
    CHECK(names_in(directory).empty());
}

TEST_CASE("a fenced directory that vanishes is an error about the directory", "[checkpoint]") {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "gone";
    std::filesystem::create_directory(path);
    HalfSave one(path, {kJob, 1}, 1);
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
        const std::vector<NamedBuffer> state{{"value", Buffer(value)}};
        Checkpointer first(directory.path(), context);
        Checkpointer second(directory.path(), context);
        const auto part = context.world().split(0, 0, "part");
        Checkpointer third(directory.path(), *part);
        { const Checkpointer only_loads(directory.path(), context); }
        first.save(1, state);
        { const Checkpointer only_loads(directory.path(), context); }
        second.save(2, state);
        third.save(3, state);
        first.save(4, state);
    });
    CHECK(names_in(directory) == Names{"step-2.safetensors", "step-3.safetensors", "step-4.safetensors", "gen-3.job"});
}

TEST_CASE("a job loads from a directory in which no file can be created, and fails when it saves", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string result = in_child([&]() -> std::string {
        const auto full = directory.path() / "full";
        const auto read_only = directory.path() / "read-only";
        for (const auto& path : {full, read_only}) std::filesystem::create_directory(path);
        if (!mount_tmpfs(full, "nr_inodes=2") || !mount_tmpfs(read_only, "")) return "cannot mount";
        for (const auto& path : {full, read_only}) save({}, path, 5);
        if (::mount(nullptr, read_only.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return "cannot mount";
        std::string text;
        const auto printed = directory.path() / "printed";
        if (std::freopen(printed.c_str(), "w", stderr) == nullptr) return "cannot redirect stderr";
        open({}, read_only);  // not started by ddprun
        for (const auto& path : {full, read_only}) {
            const auto outcomes = try_ranks(generation(1, {2}), [&](Context& context) {
                float value = 0;
                const std::vector<NamedBuffer> state{{"value", Buffer(value)}};
                Checkpointer checkpointer(path, context);
                checkpointer.load(checkpointer.latest().value(), state);
                checkpointer.save(6, state);
            });
            for (const auto& outcome : outcomes) text += outcome.text() + "\n";
            ::umount(path.c_str());
        }
        std::fflush(stderr);
        return text + read_file(printed);
    });
    if (result == "cannot mount") {
        WARN("SKIPPED: mounting a small file system needs root");
        return;
    }
    const auto expected = [&](const std::string& name, const std::string& why) {
        return "cannot create a file in checkpoint directory " + (directory.path() / name).string() + ": " + why + "\n";
    };
    const std::string full =
        expected("full", "No space left on device. Free some space there, or pass another directory");
    const std::string read_only =
        expected("read-only", "Read-only file system. Pass a directory that this user may write to");
    const std::string warning = "[ddp] checkpoints can be loaded, but not saved: ";
    CHECK(result == full + full + read_only + read_only + warning + read_only + warning + full + warning + read_only);
}

TEST_CASE("a job that had no room for its marker makes it at its first save", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::string result = in_child([&]() -> std::string {
        if (!mount_tmpfs(directory.path(), "nr_inodes=3")) return "cannot mount";
        const Names fillers{"a", "b"};
        for (const std::string& name : fillers) write_file(directory.path() / name, "");
        std::string text;
        {
            HalfSave one(directory.path(), {kJob, 1}, 1);
            for (const std::string& name : fillers) std::filesystem::remove(directory.path() / name);
            one.write();
            one.commit();
        }
        for (const std::string& name : names_in(directory)) text += name + " ";
        ::umount(directory.path().c_str());
        return text;
    });
    if (result == "cannot mount") {
        WARN("SKIPPED: mounting a small file system needs root");
        return;
    }
    CHECK(result == "gen-1.job step-5.safetensors ");
}

TEST_CASE("files of another user that cannot be removed do not fail a save", "[checkpoint]") {
    if (::geteuid() != 0) {
        WARN("SKIPPED: making files of another user needs root");
        return;
    }
    const TemporaryDirectory directory;
    for (const char* name : {"gen-1.second", "step-3.safetensors.tmp.1.second.*"})
        write_file(directory.path() / full(name), "");
    ::chmod(directory.path().c_str(), 01777);
    const std::string result = in_child([&]() -> std::string {
        if (::seteuid(65534) != 0) return "cannot change the user";
        return try_ranks(generation(1),
                         [&](Context& context) {
                             float value = 1;
                             Checkpointer(directory.path(), context)
                                 .save(5, std::vector<NamedBuffer>{{"value", Buffer(value)}});
                         })
            .front()
            .text();
    });
    CHECK(result.empty());
    CHECK(names_in(directory) ==
          Names{"gen-1.second", "step-3.safetensors.tmp.1.second.*", "gen-1.job", "step-5.safetensors"});
}
