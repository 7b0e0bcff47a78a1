#pragma once
// One target per reader of text or bytes that come from outside. A target runs its reader on any bytes at all and
// checks what must hold of whatever the reader accepts; it fails by ending the process (GP_CHECK, a sanitizer, a
// crash). To add one: a function here, its name in targets.cpp and in tests/CMakeLists.txt.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/dice.h"

namespace graphpipe::tests {

struct FuzzTarget {
  std::string_view name;
  void (*run)(std::string_view input);
  /// Inputs that the reader accepts, from which others are made.
  std::vector<std::string> (*seeds)();
  /// Pieces that mean something to the reader.
  std::vector<std::string_view> words;
  /// Changes an input as what it is; null where changing bytes does.
  std::string (*mutate)(std::string_view input, Dice& dice) = nullptr;
};

/// Each makes the target of its name: a function of its own, so that a program of one target links the one reader.
FuzzTarget fuzz_onnx();
FuzzTarget fuzz_strict_json();
FuzzTarget fuzz_plan();
FuzzTarget fuzz_cluster();
FuzzTarget fuzz_profile();
FuzzTarget fuzz_pipedream_profile();
FuzzTarget fuzz_piper_profile();
FuzzTarget fuzz_dnn_partitioning_profile();
FuzzTarget fuzz_schedule_file();
FuzzTarget fuzz_schedule_binary();
FuzzTarget fuzz_schedule_lists();
FuzzTarget fuzz_schedule_csv();
FuzzTarget fuzz_schedule_text();
FuzzTarget fuzz_stage_dag();
FuzzTarget fuzz_graph_text();
FuzzTarget fuzz_safetensors();
FuzzTarget fuzz_manifest();
FuzzTarget fuzz_npy();
FuzzTarget fuzz_tensor_proto();
FuzzTarget fuzz_data_table();
FuzzTarget fuzz_product_table();
FuzzTarget fuzz_weight_parts();
FuzzTarget fuzz_checkpoint();
FuzzTarget fuzz_feed();
FuzzTarget fuzz_control_frames();
FuzzTarget fuzz_pace_plan();
FuzzTarget fuzz_handshake();

/// All of them.
std::span<const FuzzTarget> fuzz_targets();

}  // namespace graphpipe::tests
