// The compiler of protobuf schemas, for C++ alone.

#include <google/protobuf/compiler/command_line_interface.h>
#include <google/protobuf/compiler/cpp/generator.h>

int main(int argc, char* argv[]) {
  google::protobuf::compiler::CommandLineInterface interface;
  google::protobuf::compiler::cpp::CppGenerator generator;
  interface.RegisterGenerator("--cpp_out", &generator, "C++ headers and sources");
  return interface.Run(argc, argv);
}
