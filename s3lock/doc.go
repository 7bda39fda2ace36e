// Package s3lock keeps locks in an S3 bucket: mutual exclusion between whatever machines can
// reach it, with fencing tokens, and no server but the store that is there anyway.
//
// Each grant is an object under a number of its own, in a folder per key:
//
//	<prefix>/<namespace>/<key>/9999999992.json   the seventh grant
//
// Names count down, so that one LIST of one name finds the newest grant, whatever has piled
// up. A grant is a PUT with If-None-Match, a renewal, a release and a takeover a PUT with
// If-Match; nothing is ever overwritten blindly. The algorithm is package epoch's; this
// package is its store: s3lock.go opens it, store.go speaks the steps, bucket.go sends single
// requests, clock.go judges the store's clocks, probe.go tries the store out.
// docs/backends/s3.md tells the whole story, with costs and a table of stores.
//
// # Weaknesses
//
// It is slow and it costs: an acquire is four requests, a warm one two, and a held lock
// renews three times per ttl. Use it where there is no database, with ttls from 30 s on.
//
// Waiters poll, and the order among them is chance.
//
// A dead holder's key is given away late: up to five seconds behind its ttl, because the
// store's times are whole seconds and its clocks may differ by one. Where they differ by
// more, a contender must have seen the holder silent for a whole ttl itself: one that has
// just come, as a cron job has, is refused that long.
//
// The store must honour conditional writes. What does not is refused when the namespace is
// created; a store that checks first and writes later can pass that probe by luck.
//
// Whoever may delete objects can end a lock and make its tokens start again, and so can a
// lifecycle rule. Processes that saw the greater token refuse the smaller one
// (driver.ErrTokenRegression); fresh ones cannot know. Where a replica of the bucket takes
// over it may lack the newest grants.
//
// One object per key ever used stays for ever, and the last eight numbers of it.
//
// # URLs
//
//	s3://bucket/prefix?region=eu-central-1
//	s3://bucket?endpoint=https://minio.example.com&path_style=true
//
// Parameters beside the common ones: region; endpoint (http or https);
// path_style=true for stores without a host name per bucket; profile of the shared
// configuration; sse=AES256, aws:kms or aws:kms:dsse, and kms_key with the latter two;
// expiry=store (default) or observed. Credentials come from where the AWS SDK looks for them,
// never from the URL.
//
// # Expiry
//
// By the store rule a record's age is the Date of the reply that shows it minus its
// Last-Modified: both are the store's. It is used only where a probe, made when the
// namespace is created, found that the two agree, and every later reply is compared; what
// does not fit, and expiry=observed, leads to the observed rule: a contender must see the
// object unchanged for the whole validity on its own clock. A process that looks only once is
// refused by a dead holder's record until it waits that long. Info says which rule is used.
//
// # Errors
//
// ErrNoBucket, ErrDenied and ErrRegion are driver.ErrUnavailable, ErrStore is
// driver.ErrUnsupported; each says what to do. An answer of S3 with a status below 500 is
// definite, and so is 503 SlowDown, and whatever failed before a connection was used;
// anything else may have been applied: driver.ErrAmbiguous. What is not the store's answer
// says nothing about the object: a 404 whose code is not NoSuchKey, a reply without an
// ETag, a page in the place of a listing. A 409 is tried again until the
// call's deadline, and is driver.ErrAmbiguous then. driver.ErrCorrupt names the object that is not a lock's. The SDK's own
// errors stay in the chain. Secrets are in no error.
package s3lock
