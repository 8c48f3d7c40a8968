// The methods that the library calls. Internal to it.
#pragma once

namespace warpcall::client {

inline constexpr char kExecute[] = "/warpcall.v1.KernelService/Execute";
inline constexpr char kExecuteGraph[] = "/warpcall.v1.KernelService/ExecuteGraph";
inline constexpr char kExecuteStream[] = "/warpcall.v1.KernelService/ExecuteStream";
inline constexpr char kListKernels[] = "/warpcall.v1.KernelService/ListKernels";
inline constexpr char kListDevices[] = "/warpcall.v1.KernelService/ListDevices";
inline constexpr char kServerInfo[] = "/warpcall.v1.KernelService/ServerInfo";
inline constexpr char kBenchmark[] = "/warpcall.v1.KernelService/Benchmark";
inline constexpr char kBenchmarkStream[] = "/warpcall.v1.KernelService/BenchmarkStream";
inline constexpr char kTune[] = "/warpcall.v1.KernelService/Tune";
inline constexpr char kProfile[] = "/warpcall.v1.KernelService/Profile";
inline constexpr char kDescribe[] = "/warpcall.v1.KernelService/Describe";
inline constexpr char kPush[] = "/warpcall.v1.KernelService/Push";
inline constexpr char kPut[] = "/warpcall.v1.KernelService/Put";
inline constexpr char kGet[] = "/warpcall.v1.KernelService/Get";
inline constexpr char kFree[] = "/warpcall.v1.KernelService/Free";
inline constexpr char kListTensors[] = "/warpcall.v1.KernelService/ListTensors";
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

}  // namespace warpcall::client
