// The attributes of a foreign function with the names of its operands and results, as the lowering
// (custom_call_op.cc) writes them and a handler (ffi_call.h) reads them.
#pragma once

namespace bert_tf {

inline constexpr char kInputNames[] = "input_names";
inline constexpr char kOutputNames[] = "output_names";
inline constexpr char kNameSeparator = ',';

}  // namespace bert_tf
