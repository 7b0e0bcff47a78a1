#pragma once
// The schedule as a message: part of plan files and of schedule files. For the .cpp files of this folder.

#include <string_view>

#include "files/proto_json.h"
#include "ir/schedule.h"

namespace graphpipe::files {

namespace schema {
class Schedule;
}

void fill_message(const ir::Schedule& schedule, schema::Schedule& message);
/// Adds what is wrong to `problems`, below `path`.
ir::Schedule schedule_of(const schema::Schedule& message, std::string_view path, FieldProblems& problems);

}  // namespace graphpipe::files
