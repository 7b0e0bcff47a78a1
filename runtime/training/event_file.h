#pragma once
// A TensorBoard event file: records framed as in TFRecord, each a protocol buffer `Event`.
//
//   record:  length (8 bytes), masked CRC-32C of these, the event, masked CRC-32C of the event; little-endian
//   Event:   1 wall_time double; 2 step int64; 3 file_version string; 5 summary; 7 session_log
//   Summary: 1 value, repeated: 1 tag string, 2 simple_value float
//   SessionLog: 1 status, START = 1, from which on TensorBoard forgets later steps that an earlier run has written
//
// (tensorflow/core/lib/io/record_writer.h and core/util/event.proto of TensorFlow. CRC-32C: RFC 3720, appendix B.4.)

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/io/growing_file.h"

namespace graphpipe::runtime {

/// CRC-32C, Castagnoli's polynomial.
uint32_t crc32c(std::string_view bytes);

/// Complete records. Times are seconds since 1970, steps count from 1.
std::string version_record(double wall_time);
std::string restart_record(double wall_time, int64_t step);
std::string scalars_record(double wall_time, int64_t step, std::span<const std::pair<std::string, double>> scalars);

/// Creates the folder, and a file in it named after the time, host and process, so that runs into one folder have one
/// file each. Throws RunError (kEnvironment).
GrowingFile make_event_file(const std::string& folder);

}  // namespace graphpipe::runtime
