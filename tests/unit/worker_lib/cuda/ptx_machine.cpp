#include "tests/unit/worker_lib/cuda/ptx_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "ddp/float16.hpp"

namespace ddp::testing {
namespace {

using s32 = std::int32_t;
using s64 = std::int64_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error("PTX: " + why); }

template <typename T>
T from_bits(u64 bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);  // little-endian
    return value;
}

template <typename T>
u64 to_bits(T value) {
    u64 bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

constexpr u16 kNan16 = 0x7fff;  // the ISA's NaN of both types
u16 f16_of(float value) { return value != value ? kNan16 : Float16(value).bits(); }
u16 bf16_of(float value) { return value != value ? kNan16 : BFloat16(value).bits(); }

/// "u32" has 4 bytes.
unsigned bytes_of_type(const std::string& type) { return static_cast<unsigned>(std::stoul(type.substr(1))) / 8; }

}  // namespace

u64 PtxMachine::Thread::get(const Operand& operand) const {
    switch (operand.kind) {
        case Operand::Kind::Register: return registers[operand.value];
        case Operand::Kind::Parameter: return parameters[operand.value];
        case Operand::Kind::ThreadX: return thread;
        case Operand::Kind::BlockX: return block;
        case Operand::Kind::GridX: return blocks;
        case Operand::Kind::Constant: break;
    }
    return operand.value;
}

template <typename To, typename From, auto apply>
void PtxMachine::unary(Thread& thread, const Instruction& instruction) {
    const auto a = from_bits<From>(thread.get(instruction.operands[1]));
    thread.registers[instruction.operands[0].value] = to_bits<To>(static_cast<To>(apply(a)));
}

template <typename To, typename From, auto apply>
void PtxMachine::binary(Thread& thread, const Instruction& instruction) {
    const auto a = from_bits<From>(thread.get(instruction.operands[1]));
    const auto b = from_bits<From>(thread.get(instruction.operands[2]));
    thread.registers[instruction.operands[0].value] = to_bits<To>(static_cast<To>(apply(a, b)));
}

/// A move, or with three operands one that joins or splits two halves.
template <typename T>
void PtxMachine::copy(Thread& thread, const Instruction& instruction) {
    const auto& to = instruction.operands;
    if (to.size() == 2) {
        thread.registers[to[0].value] = to_bits(from_bits<T>(thread.get(to[1])));
    } else if (instruction.lanes == 2) {  // {low, high} = whole
        const u64 whole = thread.get(to[2]);
        thread.registers[to[0].value] = whole & 0xffff;
        thread.registers[to[1].value] = whole >> 16 & 0xffff;
    } else {
        thread.registers[to[0].value] = (thread.get(to[1]) & 0xffff) | (thread.get(to[2]) & 0xffff) << 16;
    }
}

std::byte* PtxMachine::address_of(const Thread& thread, const Operand& base, const Instruction& instruction) {
    const u64 address = thread.get(base) + static_cast<u64>(instruction.offset);
    if (address % (u64{instruction.lanes} * instruction.bytes) != 0)
        fail(fmt::format("an access of {} times {} bytes at {:#x}", instruction.lanes, instruction.bytes, address));
    return reinterpret_cast<std::byte*>(address);
}

void PtxMachine::load(Thread& thread, const Instruction& instruction) {
    const std::byte* from = address_of(thread, instruction.operands.back(), instruction);
    for (unsigned i = 0; i < instruction.lanes; ++i) {
        u64& to = thread.registers[instruction.operands[i].value];
        to = 0;
        std::memcpy(&to, from + std::size_t{i} * instruction.bytes, instruction.bytes);
    }
}

void PtxMachine::store(Thread& thread, const Instruction& instruction) {
    std::byte* to = address_of(thread, instruction.operands.front(), instruction);
    for (unsigned i = 0; i < instruction.lanes; ++i) {
        const u64 value = thread.get(instruction.operands[i + 1]);
        std::memcpy(to + std::size_t{i} * instruction.bytes, &value, instruction.bytes);
    }
}

void PtxMachine::reduce(Thread& thread, const Instruction& instruction) {
    std::byte* at = address_of(thread, instruction.operands.front(), instruction);
    u64 sum = 0;
    std::memcpy(&sum, at, instruction.bytes);
    sum += thread.get(instruction.operands[1]);
    std::memcpy(at, &sum, instruction.bytes);
}

const std::map<std::string_view, PtxMachine::Execute>& PtxMachine::table() {
    constexpr auto same = [](auto a) { return a; };
    constexpr auto add = [](auto a, auto b) { return a + b; };
    constexpr auto sub = [](auto a, auto b) { return a - b; };
    constexpr auto mul = [](auto a, auto b) { return a * b; };
    constexpr auto mul_wide = [](auto a, auto b) { return u64{a} * b; };
    constexpr auto min = [](auto a, auto b) { return std::min(a, b); };
    constexpr auto bit_and = [](auto a, auto b) { return a & b; };
    constexpr auto bit_xor = [](auto a, auto b) { return a ^ b; };
    constexpr auto bit_or = [](auto a, auto b) { return a | b; };
    constexpr auto neg = [](auto a) { return 0 - a; };
    constexpr auto shl = [](auto a, auto b) { return a << b; };
    constexpr auto shr = [](auto a, auto b) { return a >> b; };
    constexpr auto lt = [](auto a, auto b) { return a < b; };
    constexpr auto le = [](auto a, auto b) { return a <= b; };
    constexpr auto gt = [](auto a, auto b) { return a > b; };
    constexpr auto ge = [](auto a, auto b) { return a >= b; };
    constexpr auto eq = [](auto a, auto b) { return a == b; };
    constexpr auto ne = [](auto a, auto b) { return a != b; };
    constexpr Execute select = [](Thread& thread, const Instruction& one) {
        const bool first = thread.get(one.operands[3]) != 0;
        thread.registers[one.operands[0].value] = thread.get(one.operands[first ? 1 : 2]);
    };
    // Sums, differences and products of integers are computed without a sign: the bits are the same.
    static const std::map<std::string_view, Execute> all{
        {"mov.u16", copy<u16>},
        {"mov.b32", copy<u32>},
        {"mov.u32", copy<u32>},
        {"mov.b64", copy<u64>},
        {"mov.u64", copy<u64>},
        {"cvta.to.global.u64", copy<u64>},
        {"cvt.u32.u16", unary<u32, u16, same>},
        {"cvt.u64.u32", unary<u64, u32, same>},
        {"cvt.u32.u64", unary<u32, u64, same>},
        {"cvt.rn.f32.f64", unary<float, double, same>},
        {"cvt.rn.f16.f32", unary<u16, float, f16_of>},
        {"cvt.rn.bf16.f32", unary<u16, float, bf16_of>},
        {"cvt.f32.f16", unary<float, u16, detail::float_of_f16>},
        {"neg.s32", unary<u32, u32, neg>},
        {"neg.s64", unary<u64, u64, neg>},
        {"add.s32", binary<u32, u32, add>},
        {"add.s64", binary<u64, u64, add>},
        {"add.rn.f32", binary<float, float, add>},
        {"sub.s32", binary<u32, u32, sub>},
        {"sub.s64", binary<u64, u64, sub>},
        {"sub.rn.f32", binary<float, float, sub>},
        {"mul.lo.s64", binary<u64, u64, mul>},
        {"mul.wide.u32", binary<u64, u32, mul_wide>},
        {"mul.rn.f32", binary<float, float, mul>},
        {"mul.rn.f64", binary<double, double, mul>},
        {"min.u64", binary<u64, u64, min>},
        {"and.b32", binary<u32, u32, bit_and>},
        {"and.b64", binary<u64, u64, bit_and>},
        {"or.b32", binary<u32, u32, bit_or>},
        {"or.b64", binary<u64, u64, bit_or>},
        {"xor.b64", binary<u64, u64, bit_xor>},
        {"or.pred", binary<u64, u64, bit_or>},
        {"shl.b32", binary<u32, u32, shl>},
        {"shl.b64", binary<u64, u64, shl>},
        {"shr.u32", binary<u32, u32, shr>},
        {"shr.u64", binary<u64, u64, shr>},
        {"setp.lt.u32", binary<u64, u32, lt>},
        {"setp.le.u32", binary<u64, u32, le>},
        {"setp.gt.u32", binary<u64, u32, gt>},
        {"setp.ge.u32", binary<u64, u32, ge>},
        {"setp.lt.u64", binary<u64, u64, lt>},
        {"setp.gt.u64", binary<u64, u64, gt>},
        {"setp.ge.u64", binary<u64, u64, ge>},
        {"setp.eq.s32", binary<u64, s32, eq>},
        {"setp.ne.s32", binary<u64, s32, ne>},
        {"setp.eq.s64", binary<u64, s64, eq>},
        {"setp.ne.s64", binary<u64, s64, ne>},
        {"setp.eq.f32", binary<u64, float, eq>},
        {"selp.b32", select},
        {"selp.b64", select},
        {"selp.f32", select},
    };
    return all;
}

PtxMachine::Operand PtxMachine::parse_operand(Kernel& kernel, const std::string& text) {
    using Kind = Operand::Kind;
    if (text == "%tid.x") return {Kind::ThreadX, 0};
    if (text == "%ctaid.x") return {Kind::BlockX, 0};
    if (text == "%nctaid.x") return {Kind::GridX, 0};
    if (text.starts_with("%"))
        return {Kind::Register, kernel.registers.emplace(text, kernel.registers.size()).first->second};
    const auto parameter = std::ranges::find(kernel.parameters, text);
    if (parameter != kernel.parameters.end())
        return {Kind::Parameter, static_cast<u64>(parameter - kernel.parameters.begin())};
    if (text.starts_with("0f") || text.starts_with("0d"))
        return {Kind::Constant, std::stoull(text.substr(2), nullptr, 16)};
    if (!std::regex_match(text, std::regex(R"(-?\d+)"))) fail("an operand " + text);
    return {Kind::Constant, static_cast<u64>(std::stoll(text))};
}

/// Parses operands as they are written: "{%rs1, %rs2}, %r1" or "%f1, [%rd1+-8]".
void PtxMachine::parse_operands(Kernel& kernel, const std::string& text, Instruction& instruction) {
    if (text.starts_with("{")) instruction.lanes = 2;  // of a move; an access to memory has its own number
    static const std::regex pattern(R"([^\s,{}\[\]+]+|\+-?\d+)");
    for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i) {
        if (const std::string word = i->str(); word.starts_with("+"))
            instruction.offset = std::stoll(word.substr(1));
        else
            instruction.operands.push_back(parse_operand(kernel, word));
    }
}

PtxMachine::Instruction PtxMachine::parse(Kernel& kernel, const std::string& line) {
    static const std::regex form(R"((?:@(!?)(%\w+) )?([a-z][\w.]*)(?: (.*))?;)");
    static const std::regex access(
        R"((ld|st|red)\.(?:param|global|relaxed\.sys|relaxed\.gpu\.add)\.(?:v(\d)\.)?(\w\d+))");
    std::smatch parts;
    if (!std::regex_match(line, parts, form)) fail("the line " + line);
    Instruction instruction;
    if (parts[2].matched) {
        instruction.predicate = static_cast<int>(parse_operand(kernel, parts[2]).value);
        instruction.negated = parts[1].length() != 0;
    }
    const std::string name = parts[3];
    if (name == "bra" || name == "bra.uni" || name == "ret") return instruction;
    parse_operands(kernel, parts[4], instruction);
    if (std::smatch memory; std::regex_match(name, memory, access)) {
        instruction.execute = memory[1] == "ld" ? load : memory[1] == "st" ? store : reduce;
        instruction.lanes = memory[2].matched ? static_cast<unsigned>(std::stoul(memory[2])) : 1;
        instruction.bytes = bytes_of_type(memory[3]);
        if (instruction.operands.size() != instruction.lanes + 1) fail("the line " + line);
        return instruction;
    }
    const auto known = table().find(name);
    if (known == table().end()) fail("the instruction " + line);
    instruction.execute = known->second;
    return instruction;
}

PtxMachine::PtxMachine(std::string_view text) {
    static const std::regex entry(R"(\.visible \.entry (\w+)\()");
    static const std::regex parameter(R"(\.param (?:\.align \d+ )?\.\w+ (\w+)(?:\[\d+\])?,?)");
    static const std::regex branch(R"((?:@\S+ )?bra(?:\.uni)? (\S+);)");
    Kernel* kernel = nullptr;
    std::map<std::string, std::size_t> labels;
    std::vector<std::pair<std::size_t, std::string>> branches;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::smatch parts;
        if (std::regex_match(line, parts, entry)) {
            kernel = &kernels_[parts[1]];
        } else if (kernel != nullptr && std::regex_match(line, parts, parameter)) {
            kernel->parameters.push_back(parts[1]);
        } else if (line == "}") {
            for (const auto& [at, label] : branches) kernel->instructions[at].target = labels.at(label);
            branches.clear();
            labels.clear();
            kernel = nullptr;
        } else if (line.starts_with("$") && line.ends_with(":")) {
            labels[line.substr(0, line.size() - 1)] = kernel->instructions.size();
        } else if (kernel != nullptr && !line.starts_with(".") && line != "{" && line != ")") {
            if (std::regex_match(line, parts, branch)) branches.emplace_back(kernel->instructions.size(), parts[1]);
            kernel->instructions.push_back(parse(*kernel, line));
        }
    }
}

std::vector<std::string> PtxMachine::kernels() const {
    std::vector<std::string> names;
    for (const auto& [name, kernel] : kernels_) names.push_back(name);
    return names;
}

void PtxMachine::run(const std::string& name, unsigned blocks, unsigned threads, void* const* arguments) const {
    const Kernel& kernel = kernels_.at(name);
    Thread state;
    state.blocks = blocks;
    for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
        state.parameters.push_back(reinterpret_cast<u64>(arguments[i]));
    for (state.block = 0; state.block < blocks; ++state.block) {
        for (state.thread = 0; state.thread < threads; ++state.thread) {
            // What is used before it is written is not a zero.
            state.registers.assign(kernel.registers.size(), 0xbadbadbadbadbadb);
            for (std::size_t at = 0; at < kernel.instructions.size();) {
                const Instruction& one = kernel.instructions[at++];
                if (one.predicate >= 0 &&
                    (state.registers[static_cast<std::size_t>(one.predicate)] != 0) == one.negated)
                    continue;
                if (one.execute != nullptr) {
                    one.execute(state, one);
                } else {
                    at = one.target;  // kEnd: behind every instruction
                }
            }
        }
    }
}

}  // namespace ddp::testing
