// Checkpoints of parts: any number of ranks loads what any number has saved, and the file is plain safetensors.

#include <boost/json.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/checkpoint/old_file.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using namespace ddp;
using namespace ddp::testing;
using Names = std::set<std::string>;

namespace {

struct Whole {
    std::string name;
    DType dtype;
    std::vector<std::size_t> shape;
    [[nodiscard]] std::size_t count() const {
        std::size_t count = 1;
        for (const std::size_t size : shape) count *= size;
        return count;
    }
    /// Returns the bytes of some elements. Each is another value.
    [[nodiscard]] std::vector<std::byte> bytes(std::size_t begin, std::size_t elements) const {
        std::vector<std::byte> bytes(elements * size_of(dtype));
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            const std::size_t at = begin * size_of(dtype) + i;
            bytes[i] = static_cast<std::byte>(at * 7 + at / 251 + name.size());
        }
        return bytes;
    }
};

/// Tensors of several blocks, of parts of one, and without elements.
const std::vector<Whole> kModel{{"bytes", DType::U8, {1'000'001}},    {"weights", DType::F32, {700, 1000}},
                                {"scalar", DType::F64, {}},           {"nothing", DType::BF16, {0, 4}},
                                {"a \"name\" ö", DType::I16, {3, 5}}, {"bias", DType::F32, {1003}}};

/// One rank's parts: an odd cut of each tensor, so that some ranks have nothing of a small one.
class Parts {
public:
    Parts(std::size_t rank, std::size_t ranks, bool filled) {
        for (const Whole& whole : kModel) {
            const auto cut = [&](std::size_t r) { return r == ranks ? whole.count() : whole.count() * r / ranks; };
            const std::size_t begin = cut(rank);
            const std::size_t count = cut(rank + 1) - begin;
            memory_.push_back(whole.bytes(begin, count));
            expected_.push_back(memory_.back());
            if (!filled) std::ranges::fill(memory_.back(), std::byte{0xEE});
            state_.push_back({whole.name, whole.shape, begin, {memory_.back().data(), count, whole.dtype}});
        }
    }
    [[nodiscard]] const std::vector<NamedShard>& state() const { return state_; }
    [[nodiscard]] bool is_right() const { return memory_ == expected_; }

private:
    std::vector<std::vector<std::byte>> memory_, expected_;
    std::vector<NamedShard> state_;
};

Parts parts_of(const Context& context, bool filled, std::size_t parts = 0) {
    const auto ranks = parts == 0 ? static_cast<std::size_t>(context.world_size()) : parts;
    return {static_cast<std::size_t>(context.rank()) % ranks, ranks, filled};
}

void save_parts(int ranks, const std::filesystem::path& directory, bool async, std::size_t parts = 0) {
    run_ranks({.ranks_per_node = {ranks}}, [&](Context& context) {
        const Parts mine = parts_of(context, true, parts);
        Checkpointer checkpointer(directory, context);
        async ? checkpointer.save_async(3, mine.state()) : checkpointer.save(3, mine.state());
        checkpointer.wait();
    });
}

std::vector<bool> loads(int ranks, const std::filesystem::path& directory, std::size_t parts = 0) {
    return run_ranks({.ranks_per_node = {ranks}}, [&](Context& context) {
        const Parts mine = parts_of(context, false, parts);
        Checkpointer(directory, context).load(3, mine.state());
        return mine.is_right();
    });
}

/// Reads a tensor as any reader of the format would.
std::string tensor_in(const std::string& file, const std::string& name) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const auto header = boost::json::parse(file.substr(8, length)).as_object();
    const auto& offsets = header.at(name).at("data_offsets").as_array();
    const auto begin = offsets.at(0).to_number<std::size_t>();
    return file.substr(8 + length + begin, offsets.at(1).to_number<std::size_t>() - begin);
}

}  // namespace

TEST_CASE("parts that 1 to 4 ranks save are loaded by 1 to 4, and the data is the same", "[checkpoint]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const bool async = GENERATE(false, true);
    CAPTURE(ranks, async);
    const TemporaryDirectory directory;
    const TemporaryDirectory of_one;
    save_parts(ranks, directory.path(), async);
    save_parts(1, of_one.path(), false);
    CHECK(directory.names() == Names{"step-3.safetensors"});
    const std::string file = read_file(directory.path() / "step-3.safetensors");
    for (const Whole& whole : kModel) {
        const auto bytes = whole.bytes(0, whole.count());
        const bool same =
            tensor_in(file, whole.name) == std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        CHECK(same);
    }
    const std::string other = read_file(of_one.path() / "step-3.safetensors");
    CHECK(file.substr(65536) == other.substr(65536));
    for (int w = 1; w <= 4; ++w)
        CHECK(loads(w, directory.path()) == std::vector<bool>(static_cast<std::size_t>(w), true));
}

TEST_CASE("replicas write each byte once, and load what any ranks have saved", "[checkpoint]") {
    const std::size_t parts = GENERATE(1, 2);
    const TemporaryDirectory directory;
    save_parts(4, directory.path(), false, parts);
    CHECK(loads(4, directory.path(), parts) == std::vector<bool>(4, true));
    CHECK(loads(3, directory.path()) == std::vector<bool>(3, true));
}

TEST_CASE("values that differ between ranks are rows of one tensor, and each rank gets its own", "[checkpoint]") {
    constexpr std::size_t kRow = 700'001;  // some blocks; rows begin inside of them
    const TemporaryDirectory directory;
    const auto right = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        const auto rank = static_cast<std::size_t>(context.rank());
        std::vector<float> row(kRow, static_cast<float>(rank));
        const std::vector<NamedShard> state{{"local", {3, kRow}, rank * kRow, Buffer(row)}};
        Checkpointer checkpointer(directory.path(), context);
        checkpointer.save(1, state);
        std::ranges::fill(row, -1.0F);
        checkpointer.load(1, state);
        return std::ranges::count(row, static_cast<float>(rank)) == std::ssize(row);
    });
    CHECK(right == std::vector<bool>(3, true));
}

TEST_CASE("whole tensors are loaded as parts, and parts as whole tensors", "[checkpoint]") {
    const TemporaryDirectory directory;
    std::vector<float> values(1'000'000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const bool old = GENERATE(false, true);
    const auto right = run_ranks({.ranks_per_node = {3}}, [&](Context& context) {
        Checkpointer checkpointer(directory.path(), context);
        auto mine = values;
        const std::vector<NamedBuffer> whole{{"values", Buffer(mine)}};
        if (!old) checkpointer.save(1, whole);
        if (old && context.rank() == 0) write_file(directory.path() / "step-1.ckpt", old_checkpoint(2, 1, whole));
        context.world().barrier().wait();
        const std::size_t begin = values.size() * static_cast<std::size_t>(context.rank()) / 3;
        const std::size_t end = values.size() * static_cast<std::size_t>(context.rank() + 1) / 3;
        std::vector<float> part(end - begin);
        const std::vector<NamedShard> shards{{"values", {1000, 1000}, begin, Buffer(part)}};
        checkpointer.load(1, shards);
        checkpointer.save(2, shards);
        std::ranges::fill(mine, -1.0F);
        checkpointer.load(2, whole);
        return mine == values;
    });
    CHECK(right == std::vector<bool>(3, true));
}

TEST_CASE("a model in parts is saved with its optimiser, and loaded by another number of ranks", "[checkpoint]") {
    const TemporaryDirectory directory;
    const std::vector<std::vector<ParamSpec>> units{{{"w", 120, DType::F32, 1, {10, 12}}, {"b", 10}}, {{"v", 70}}};
    const auto value = [](std::size_t param, std::size_t i) { return static_cast<float>(1000 * param + i); };
    const auto run = [&](int ranks, bool saves) {
        return run_ranks({.ranks_per_node = {ranks}}, [&](Context& context) {
            ShardedParameters model(context.world(), units);
            std::vector<float> moment(model.size());
            const auto state = [&] { return concat(model.state(), model.state(".exp_avg", Buffer(moment))); };
            Checkpointer checkpointer(directory.path(), context);
            std::size_t k = 0;
            bool right = true;
            if (!saves) {
                checkpointer.load(4, state());
                model.changed();
            }
            for (const Shard& shard : model.shards()) {
                for (std::size_t i = 0; i < shard.values.count; ++i, ++k) {
                    const float expected = value(shard.param, shard.begin + i);
                    if (saves) {
                        shard.values.as<float>()[i] = expected;
                        moment[k] = -expected;
                    }
                    right = right && shard.values.as<float>()[i] == expected && moment[k] == -expected;
                }
            }
            if (saves) checkpointer.save(4, state());
            return right;
        });
    };
    run(3, true);
    const std::string file = read_file(directory.path() / "step-4.safetensors");
    CHECK_THAT(file, Contains(R"("w.exp_avg":{"dtype":"F32","shape":[10,12],)") &&
                         Contains(R"("v":{"dtype":"F32","shape":[70])"));
    for (int ranks = 1; ranks <= 4; ++ranks)
        CHECK(run(ranks, false) == std::vector<bool>(static_cast<std::size_t>(ranks), true));
}

TEST_CASE("parts that leave elements out, or lie outside their tensor, are refused on every rank", "[checkpoint]") {
    const TemporaryDirectory directory;
    const int what = GENERATE(0, 1, 2, 3);
    const auto outcomes = try_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        const bool second = context.rank() == 1;
        std::vector<float> part(5, 1.0F);
        NamedShard shard{"a", {2, 5}, second ? std::size_t{5} : 0, Buffer(part)};
        if (what == 0 && second) shard.part.count = 3;
        if (what == 1 && second) shard.begin = 6;
        if (what == 2 && second) shard.shape = {5, 2};
        if (what == 3) shard.name = "__metadata__";
        Checkpointer(directory.path(), context).save(1, {shard});
    });
    const std::array<std::string, 4> texts{"cannot checkpoint: no rank has elements 8 to 9 of 'a'",
                                           "its part has 5 elements from 6 on, and the whole tensor 10",
                                           "tensor 0 'a' f32[2,5], but ", "the file format uses this name itself"};
    for (const auto& outcome : outcomes) CHECK_THAT(outcome.text(), Contains(texts.at(static_cast<std::size_t>(what))));
    CHECK(directory.names().empty());
}
