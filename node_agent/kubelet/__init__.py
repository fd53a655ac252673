"""What Kubernetes says of this machine: the kubelet's pods, the API server's node object.

`client` asks over HTTPS, `watch` asks again and again in a thread of its own, `wire` reads pods,
`quantity` and `requests` their amounts, `facts` turns them into what the agent knows of a pod,
`roll` keeps them, `node_object` reads the node. Nothing here looks at control groups.
"""
