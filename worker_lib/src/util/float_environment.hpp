#pragma once
// UsualFloats: while it lives, the calling thread rounds to nearest and keeps subnormals, whatever the trainer has set
// for it. A group's operations run on whichever thread comes to wait, and ranks that add up for themselves must come to
// the same bits.

#include <cstdint>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace ddp::detail {

class UsualFloats {
public:
    UsualFloats() : before_(control()) {
        if (settings(before_) != kUsual) set_control(kUsual);
    }
    ~UsualFloats() {
        if (settings(before_) != kUsual) set_control(before_);
    }
    UsualFloats(const UsualFloats&) = delete;
    UsualFloats& operator=(const UsualFloats&) = delete;

private:
#if defined(__SSE2__)
    using Word = std::uint32_t;
    static constexpr Word kUsual = 0x1f80;  // of MXCSR: all exceptions masked
    static Word control() { return _mm_getcsr(); }
    static void set_control(Word word) { _mm_setcsr(word); }
    static Word settings(Word word) { return word & ~Word{0x3f}; }  // without what has happened
#elif defined(__aarch64__)
    using Word = std::uint64_t;
    static constexpr Word kUsual = 0;  // of FPCR
    static Word control() {
        Word word = 0;
        asm volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set_control(Word word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
    static Word settings(Word word) { return word; }
#else
    using Word = std::uint32_t;
    static constexpr Word kUsual = 0;
    static Word control() { return kUsual; }
    static void set_control(Word /*word*/) {}
    static Word settings(Word word) { return word; }
#endif

    const Word before_;
};

}  // namespace ddp::detail
