#include "tests/fuzz/targets.h"

namespace graphpipe::tests {

std::span<const FuzzTarget> fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {fuzz_onnx(),           fuzz_strict_json(),
                                                  fuzz_plan(),           fuzz_cluster(),
                                                  fuzz_profile(),        fuzz_pipedream_profile(),
                                                  fuzz_piper_profile(),  fuzz_dnn_partitioning_profile(),
                                                  fuzz_schedule_file(),  fuzz_schedule_binary(),
                                                  fuzz_schedule_lists(), fuzz_schedule_csv(),
                                                  fuzz_schedule_text(),  fuzz_stage_dag(),
                                                  fuzz_graph_text(),     fuzz_safetensors(),
                                                  fuzz_manifest(),       fuzz_npy(),
                                                  fuzz_tensor_proto(),   fuzz_data_table(),
                                                  fuzz_product_table(),  fuzz_weight_parts(),
                                                  fuzz_checkpoint(),     fuzz_feed(),
                                                  fuzz_control_frames(), fuzz_pace_plan(),
                                                  fuzz_handshake()};
  return targets;
}

}  // namespace graphpipe::tests
