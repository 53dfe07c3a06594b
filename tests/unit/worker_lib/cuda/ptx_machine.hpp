#pragma once
// PtxMachine: executes PTX, so that a machine without a GPU sees what the text in the library computes. It knows the
// instructions that gradients.ptx has, with the meaning that the PTX ISA gives them, and runs one thread after another.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::testing {

class PtxMachine {
public:
    /// Throws std::runtime_error that names the line, for all that it does not know.
    explicit PtxMachine(std::string_view text);

    /// Runs a kernel with `blocks` blocks of `threads` threads. Throws std::runtime_error for an access to memory that
    /// is no multiple of its size, with which a GPU ends the kernel.
    void run(const std::string& kernel, unsigned blocks, unsigned threads, void* const* arguments) const;

    [[nodiscard]] std::vector<std::string> kernels() const;

private:
    /// A register, or a constant that is the same for all threads, or one of the numbers that a thread is given.
    struct Operand {
        enum class Kind { Register, Constant, Parameter, ThreadX, BlockX, GridX } kind = Kind::Constant;
        std::uint64_t value = 0;  ///< the register's or the parameter's index, or the constant's bits
    };
    struct Thread {
        std::vector<std::uint64_t> registers;
        std::vector<std::uint64_t> parameters;  ///< their addresses
        unsigned thread = 0, block = 0, blocks = 0;

        [[nodiscard]] std::uint64_t get(const Operand& operand) const;
    };
    struct Instruction;
    using Execute = void (*)(Thread& thread, const Instruction& instruction);
    struct Instruction {
        Execute execute = nullptr;      ///< null: a branch or, without a target, the end
        std::vector<Operand> operands;  ///< without braces and brackets
        std::int64_t offset = 0;        ///< of an address
        unsigned lanes = 1, bytes = 0;  ///< of an access to memory
        int predicate = -1;             ///< the register that has to be 1, or 0 if `negated`
        bool negated = false;
        std::size_t target = kEnd;
    };
    struct Kernel {
        std::vector<std::string> parameters;
        std::map<std::string, std::uint64_t> registers;
        std::vector<Instruction> instructions;
    };
    static constexpr std::size_t kEnd = ~std::size_t{0};

    static Instruction parse(Kernel& kernel, const std::string& line);
    static void parse_operands(Kernel& kernel, const std::string& text, Instruction& instruction);
    static Operand parse_operand(Kernel& kernel, const std::string& text);
    static const std::map<std::string_view, Execute>& table();
    static void load(Thread& thread, const Instruction& instruction);
    static void store(Thread& thread, const Instruction& instruction);
    static void reduce(Thread& thread, const Instruction& instruction);
    static std::byte* address_of(const Thread& thread, const Operand& base, const Instruction& instruction);
    template <typename T>
    static void copy(Thread& thread, const Instruction& instruction);
    template <typename To, typename From, auto apply>
    static void unary(Thread& thread, const Instruction& instruction);
    template <typename To, typename From, auto apply>
    static void binary(Thread& thread, const Instruction& instruction);

    std::map<std::string, Kernel> kernels_;
};

}  // namespace ddp::testing
