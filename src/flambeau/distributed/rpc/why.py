"""What is said of every name of torch.distributed.rpc."""

WHY = "functions cannot be called in other processes. Ranks send each other tensors (send, recv) and objects (send_object_list, broadcast_object_list)"
