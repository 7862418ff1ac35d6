// What the GPU kernels use of the standard library, which NVRTC does not have. The headers of these
// names (cuda_driver.cc) are this file there.
#pragma once

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof(0));

#define INT64_MAX 0x7FFFFFFFFFFFFFFF
#define INFINITY __int_as_float(0x7F800000)
#define NAN __int_as_float(0x7FC00000)
#define FLT_MAX __int_as_float(0x7F7FFFFF)

namespace std {

template <typename T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

template <typename A, typename B>
struct is_same : false_type {};
template <typename A>
struct is_same<A, A> : true_type {};
template <typename A, typename B>
inline constexpr bool is_same_v = is_same<A, B>::value;

template <bool kCondition, typename A, typename B>
struct conditional {
  using type = A;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kCondition, typename A, typename B>
using conditional_t = typename conditional<kCondition, A, B>::type;

template <typename Signature>
struct function;  // an argument of the CPU kernels, whose headers have the arguments of the
                  // launchers
template <typename Result, typename... Arguments>
struct function<Result(Arguments...)> {
  Result operator()(Arguments...) const;
};

}  // namespace std
